-- The account's seals, and whether a ledger is what it should be.

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
select seq, workflow_id, machine, subject, source, target, at, why, actor from transition
where seq >= :first order by seq limit :limit;

-- name: seal_last
-- The newest seal of the account.
select last, chain from seal order by last desc limit 1;

-- name: account_head
-- The newest host and the newest seal. A host for which these are not its own has lost the ledger to another host.
select h.epoch, s.last, s.chain from host h left join seal s on s.last = (select max(last) from seal)
order by h.epoch desc limit 1;

-- name: seal_rows
-- What was appended to the account after a seal.
select seq, workflow_id, machine, subject, source, target, at, why, actor from transition
where seq > :last order by seq;

-- name: seal_insert
-- Close what one transaction appended to the account.
insert into seal (last, chain) values (:last, :chain);

-- name: seal_page
-- The seals of the account from one row on, in their order.
select last, chain from seal where last >= :first order by last limit :limit;
