-- Which hosts work on the ledger, and which of them runs which workflow. Only PostgreSQL needs these: in SQLite a lock on
-- the file says it.

-- name: ledger_hold
-- Nobody else writes until this transaction has ended.
select schema_needed from ledger for update;

-- name: host_stands
-- Whether a host still has its place.
select 1 from heartbeat where epoch = :epoch and lost_at is null;

-- name: account_append
-- What one commit did, behind the newest entry, and what that tells of. It is hashed as ledger/account.py does.
with newest as (
  select coalesce(max(a.seq), 0) + 1 as seq, coalesce((array_agg(a.chain))[1], '') as before
  from (select seq, chain from account order by seq desc limit 1) a),
made as (
  insert into account (seq, at, told, chain)
  select n.seq, :at, :told, sha256(n.before || convert_to(' ' || n.seq || ' ' || :at || ' ' || :told, 'UTF8'))
  from newest n returning seq, chain),
named as (
  insert into account_subject (subject_id, entry) select s.id, m.seq from made m, unnest(:subject_ids) s (id))
select seq, chain from made;

-- name: account_next
-- The number that the next entry will have.
select coalesce(max(seq), 0) + 1 as seq from account;

-- name: heartbeat_all
-- Every host that has not ended: who it is, and for how long it has not said that it lives, by the database's clock.
select h.epoch, h.id, h.machine, h.pid, h.started_at, b.boot, b.lock, b.works, b.drains, b.lost_at,
  (extract(epoch from clock_timestamp()) * 1000)::bigint - b.beat_at as silent_ms,
  (select count(*) from owner o where o.epoch = h.epoch) as workflows
from heartbeat b join host h on h.epoch = b.epoch order by h.epoch;

-- name: heartbeat_begin
-- A host has a place from now on.
insert into heartbeat (epoch, beat_at, boot, lock, works, knows)
values (:epoch, (extract(epoch from clock_timestamp()) * 1000)::bigint, :boot, :lock, :works, :knows);

-- name: heartbeat_beat
-- It still has it; whoever was silent for too long does not get it back.
update heartbeat set beat_at = (extract(epoch from clock_timestamp()) * 1000)::bigint
where epoch = :epoch and lost_at is null
  and beat_at >= (extract(epoch from clock_timestamp()) * 1000)::bigint - :silent_ms;

-- name: heartbeat_lose
-- A host has lost its place. Its row stays until it is known to be dead.
update heartbeat set lost_at = :now where epoch = :epoch and lost_at is null;

-- name: heartbeat_drain
-- A person wants a host to hand over its work and end.
update heartbeat set drains = 1 where epoch = :epoch;

-- name: heartbeat_end
-- A host is no more: it ended, or is known to be dead. Nothing of its calls can leave any more.
delete from heartbeat where epoch = :epoch;

-- name: owner_free
-- Workflows without a host that is at work.
select w.id as workflow_id from workflow w left join owner o on o.workflow_id = w.id
where not exists (select 1 from heartbeat b where b.epoch = o.epoch and b.lost_at is null)
order by w.id limit :limit;

-- name: owner_missing
-- Workflows that nobody runs: their host has no place, or was silent for too long.
select w.id as workflow_id from workflow w left join owner o on o.workflow_id = w.id
where not exists (select 1 from heartbeat b where b.epoch = o.epoch and b.lost_at is null
  and b.beat_at > (extract(epoch from clock_timestamp()) * 1000)::bigint - :silent_ms);

-- name: owner_take
-- A host runs a workflow from now on.
insert into owner (workflow_id, epoch) values (:workflow_id, :epoch)
on conflict (workflow_id) do update set epoch = excluded.epoch;

-- name: owner_give
-- It does so no longer; whoever has room may take it.
delete from owner where workflow_id = :workflow_id and epoch = :epoch;

-- name: owner_give_all
-- The same, of all that it runs.
delete from owner where epoch = :epoch;

-- name: owner_of
-- The workflows that a host runs.
select workflow_id from owner where epoch = :epoch order by workflow_id;

-- name: owner_host
-- Which host was the last to take a workflow, and has not given it back.
select h.id from owner o join host h on h.epoch = o.epoch where o.workflow_id = :workflow_id;

-- name: owner_count
-- How many workflows there are, and how many of them a host runs.
select (select count(*) from workflow) as workflows, (select count(*) from owner where epoch = :epoch) as own;

-- name: nudge_insert
-- Somebody has changed something in a workflow that another host may run.
insert into nudge (workflow_id) values (:workflow_id) on conflict do nothing;

-- name: nudge_waits
-- Whether there is one for this host, or for nobody.
select 1 as waits from nudge n left join owner o on o.workflow_id = n.workflow_id
where o.epoch = :epoch or not exists (select 1 from heartbeat b where b.epoch = o.epoch and b.lost_at is null) limit 1;

-- name: nudge_take
-- The workflows of a host in which others have changed something; each is told once.
delete from nudge n using owner o where o.workflow_id = n.workflow_id and o.epoch = :epoch returning n.workflow_id;

-- name: nudge_others
-- Wake the hosts that listen; they look for themselves.
select pg_notify('keep', '');

-- name: late_mark_insert
-- What a host knows of its own call, whose workflow another host runs by now.
insert into late_mark (mutation_id, epoch, said, happened, result, outcome, at)
values (:mutation_id, :epoch, :said, :happened, :result, :outcome, :now)
on conflict (mutation_id) do update set said = late_mark.said || ' ' || excluded.said,
  happened = coalesce(excluded.happened, late_mark.happened), result = coalesce(excluded.result, late_mark.result),
  outcome = coalesce(excluded.outcome, late_mark.outcome);

-- name: late_mark_take
-- What others know of calls in workflows that this host runs and has taken over.
delete from late_mark k using mutation m, owner o
where m.id = k.mutation_id and m.status <> 'in_flight' and o.workflow_id = m.workflow_id and o.epoch = :epoch
returning k.mutation_id, m.workflow_id, k.said, k.happened, k.result, k.outcome;

-- name: mutation_of_epoch
-- The calls of a host that are not known to have ended.
select id, workflow_id from mutation where epoch = :epoch and closed_at is null
  and (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate');

-- name: ledger_change
-- A number that changes with every commit of anything in this server: a hash of which transactions have ended.
select hashtextextended(pg_current_snapshot()::text, 0) as change;

-- name: ledger_bytes
-- How much room the tables take, with their indexes.
select coalesce(sum(pg_total_relation_size(c.oid)), 0) as bytes from pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r';
