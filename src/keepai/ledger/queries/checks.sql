-- The account, and whether a ledger is what it should be.

-- name: check_pages
-- What is wrong with the pages, indexes and constraints of the file; one row that says ok if nothing is.
select integrity_check as found from pragma_integrity_check;

-- name: check_references
-- Rows that refer to a row which is not there.
select "table" as referring, rowid as row, parent as missing from pragma_foreign_key_check limit :limit;

-- name: account_last
-- The newest entry of the account.
select seq, at, chain from account order by seq desc limit 1;

-- name: account_last_until
-- When the newest entry that was written by a moment was written, or else the first one.
select coalesce(
  (select at from account where at <= :until order by seq desc limit 1), (select at from account order by seq limit 1)
) as at;

-- name: account_newest
-- The number of the newest entry.
select max(seq) as seq from account;

-- name: account_head
-- The newest host and the newest entry. A host for which these are not its own has lost the ledger to another host.
select h.epoch, a.seq, a.chain from host h left join account a on a.seq = (select max(seq) from account)
order by h.epoch desc limit 1;

-- name: account_insert
-- What one commit did.
insert into account (seq, at, told, chain) values (:seq, :at, :told, :chain);

-- name: account_subject_insert
-- An entry tells of a thing.
insert into account_subject (subject_id, entry) values (:subject_id, :entry);

-- name: account_page
-- The account from one entry on, in its order.
select seq, at, told, chain from account where seq >= :first order by seq limit :limit;

-- name: account_of_subject
-- The entries that tell of one thing, oldest first.
select a.seq, a.at, a.told from account_subject s cross join account a
where s.subject_id = :subject_id and a.seq = s.entry order by s.entry;

-- name: account_of_subject_newest
-- The same, newest first.
select a.seq, a.at, a.told from account_subject s cross join account a
where s.subject_id = :subject_id and a.seq = s.entry order by s.entry desc;

-- name: account_subject_count
-- How often the entries up to one tell of something.
select count(*) as number from account_subject where entry <= :until;

-- name: account_at
-- When an entry was written, or the first one after that number.
select at from account where seq >= :seq order by seq limit 1;
