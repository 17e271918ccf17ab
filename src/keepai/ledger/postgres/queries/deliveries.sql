-- Deliveries of webhooks. Only PostgreSQL keeps them: beside a ledger in a file they are files in a folder.

-- name: inbox_take
-- The number of the next delivery, and the lock under which it is written.
insert into inbox (name, last) values (:name, :now)
on conflict (name) do update set last = greatest(inbox.last + 1, excluded.last) returning last;

-- name: inbox_all
-- Every connector to which something was sent.
select name from inbox order by name;

-- name: delivery_known
-- Whether a delivery is there already.
select number from delivery where inbox = :inbox and digest = :digest;

-- name: delivery_count
-- How many there are, as far as it matters.
select count(*) as number from (select 1 from delivery where inbox = :inbox limit :limit) kept;

-- name: delivery_insert
-- Keep a delivery.
insert into delivery (inbox, number, digest, content) values (:inbox, :number, :digest, :content)
on conflict do nothing;

-- name: delivery_after
-- The deliveries after a number, in order.
select number from delivery where inbox = :inbox and number > :number order by number limit :limit;

-- name: delivery_newest
-- The newest deliveries.
select number from delivery where inbox = :inbox order by number desc limit :limit;

-- name: delivery_one
-- One delivery.
select content from delivery where inbox = :inbox and number = :number;
