-- Which host has the ledger. Only PostgreSQL needs these: in SQLite a lock on the file says it.

-- name: ledger_hold
-- Nobody else writes until this transaction has ended.
select schema from ledger for update;

-- name: heartbeat_of_host
-- The host that has the ledger, and for how long it has not said that it lives, by the database's clock. A host that let
-- go of everything has it no longer.
select h.epoch, h.id, h.machine, h.pid, h.started_at, b.boot, b.lock,
  (extract(epoch from clock_timestamp()) * 1000)::bigint - b.beat_at as silent_ms
from heartbeat b join host h on h.epoch = b.epoch order by h.epoch desc limit 1;

-- name: heartbeat_end_all
-- Nobody has the ledger.
delete from heartbeat;

-- name: heartbeat_begin
-- A host has the ledger from now on.
insert into heartbeat (epoch, beat_at, boot, lock)
values (:epoch, (extract(epoch from clock_timestamp()) * 1000)::bigint, :boot, :lock);

-- name: heartbeat_beat
-- It still has it.
update heartbeat set beat_at = (extract(epoch from clock_timestamp()) * 1000)::bigint where epoch = :epoch;

-- name: heartbeat_end
-- It has it no longer.
delete from heartbeat where epoch = :epoch;

-- name: ledger_change
-- A number that changes with every commit of anything in this server: a hash of which transactions have ended.
select hashtextextended(pg_current_snapshot()::text, 0) as change;

-- name: ledger_bytes
-- How much room the tables take, with their indexes.
select coalesce(sum(pg_total_relation_size(c.oid)), 0) as bytes from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r';
