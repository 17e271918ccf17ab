-- What PostgreSQL cannot be told in the words of ledger/queries. Each says why it stands here.

-- name: check_pages
-- What is wrong with indexes and constraints; one row that says ok if nothing is. SQLite has a pragma for it. Pages are
-- checked by the server itself, by their checksums, if the cluster was made with them.
select coalesce(min(broken.found), 'ok') as found from (
  select 'the index ' || i.indexrelid::regclass || ' is not valid' as found from pg_index i
  join pg_class c on c.oid = i.indexrelid where c.relnamespace = current_schema()::regnamespace and not i.indisvalid
  union all select 'the constraint ' || c.conname || ' is not validated' from pg_constraint c
  where c.connamespace = current_schema()::regnamespace and not c.convalidated
  union all select 'the trigger ' || t.tgname || ' is switched off' from pg_trigger t join pg_class c on c.oid = t.tgrelid
  where c.relnamespace = current_schema()::regnamespace and t.tgenabled <> 'O') broken;

-- name: check_references
-- Rows that refer to a row which is not there. SQLite has a pragma for it; here a function of schema.sql looks.
select referring, line as row, missing from broken_references() limit :limit;

-- name: look_begin
-- From here on, see one moment of the ledger. PostgreSQL sees a moment only in a transaction of this kind.
begin isolation level repeatable read read only;

-- name: never_item_in_no_hand
-- An item in hand of a lineage that has ended. SQLite must be told which index to take, and PostgreSQL cannot be.
select t.id, t.status from item t where t.status in ('processing', 'needs_attention')
and exists (select 1 from item_run x
  where x.workflow_id = t.workflow_id and x.item_id = t.id and x.attempt = t.attempt)
and not exists (select 1 from item_run x cross join run r cross join run o
  where x.workflow_id = t.workflow_id and x.item_id = t.id and r.id = x.run_id
    and o.workflow_id = r.workflow_id and o.lineage = r.lineage
    and (o.status = 'active' or o.status = 'paused' or o.status = 'failed'));

-- name: mutation_unclosed
-- A call of a dead host that is not known to have ended. In SQLite every earlier host is dead.
select m.id from mutation m
where m.closed_at is null and not exists (select 1 from heartbeat b where b.epoch = m.epoch)
  and (m.status = 'in_flight' or m.status = 'needs_reconcile' or m.status = 'indeterminate') limit 1;

-- name: mutation_close_dead
-- The calls of dead hosts have ended with them. In SQLite every earlier host is dead.
update mutation set closed_at = :now
where closed_at is null and not exists (select 1 from heartbeat b where b.epoch = mutation.epoch)
  and (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate');

-- name: host_over
-- Whether a host is known to be dead, or has ended. In SQLite every earlier host is dead.
select h.epoch from host h where h.epoch = :epoch and not exists (select 1 from heartbeat b where b.epoch = h.epoch);

-- name: workflow_here
-- Whether a host runs a workflow. In SQLite there is only one host.
select workflow_id from owner where workflow_id = :workflow_id and epoch = :epoch;

-- name: never_two_hosts_at_once
-- In a file, an earlier host that worked on after a later one was one that had lost it. Here hosts hand workflows to and
-- fro; whoever has lost its place is refused by the first statement of every transaction.
select r.id, r.host from run r where false;
