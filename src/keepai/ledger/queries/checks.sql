-- Whether a ledger is what it should be. None of these changes anything.

-- name: check_pages
-- What is wrong with the pages, indexes and constraints of the file; one row that says ok if nothing is.
select integrity_check as found from pragma_integrity_check;

-- name: check_references
-- Rows that refer to a row which is not there.
select "table" as referring, rowid as row, parent as missing from pragma_foreign_key_check limit :limit;

-- name: account_newest
-- When the newest row of the account was written.
select at from transition order by seq desc limit 1;

-- name: account_page
-- The account from one row on, in its order.
select seq, workflow_id, machine, subject, source, target, at, why, actor, chain from transition
where seq >= :first order by seq limit :limit;
