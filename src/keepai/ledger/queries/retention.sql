-- What retention throws away: the content of finished work, never a row that says what happened. A text that was thrown
-- away is empty, which no JSON is. Rows that name things (messageIds, external ids, mutation keys) stay for ever.

-- name: prune_runs
-- Runs that ended before a moment, of lineages in which nothing is open, with content that can be thrown away.
select r.id, coalesce(octet_length(r.prepare_result), 0) as bytes from run r
where r.workflow_id = :workflow_id and r.seq >= :first and r.seq < :until and r.updated_at < :before
  and r.status in ('committed', 'crashed', 'superseded', 'abandoned')
  and (r.prepare_result <> '' or exists (
    select 1 from trace t where t.workflow_id = r.workflow_id and t.run_id = r.id) or exists (
    select 1 from recording c where c.workflow_id = r.workflow_id and c.seq = r.seq))
  and not exists (select 1 from run o where o.workflow_id = r.workflow_id and o.lineage = r.lineage
    and (o.status = 'active' or o.status = 'paused' or o.status = 'failed'))
  and not exists (select 1 from item_run x join item t on t.id = x.item_id
    where x.workflow_id = r.workflow_id and x.run_id = r.id and t.status in ('processing', 'failed', 'needs_attention'))
  and not exists (select 1 from mutation m where m.workflow_id = r.workflow_id and m.lineage = r.lineage
    and m.contradicted_at is not null)
order by r.seq;

-- name: prune_events
-- Events that ended before a moment, with payloads that can be thrown away.
select e.id, octet_length(e.payload) as bytes from event e
where e.workflow_id = :workflow_id and e.seq >= :first and e.seq < :until and e.updated_at < :before
  and e.status <> 'pending'
  and (e.payload <> '' or exists (select 1 from event_revision v
    where v.workflow_id = e.workflow_id and v.event_id = e.id and v.created_at < :before))
order by e.seq;

-- name: prune_run
-- Throw away what a run had prepared; a run that prepared nothing stays as it is.
update run set prepare_result = '' where id = :run_id and prepare_result <> ''
  and status in ('committed', 'crashed', 'superseded', 'abandoned');

-- name: prune_trace
-- Throw away what a run called and logged.
delete from trace where workflow_id = :workflow_id and run_id = :run_id;

-- name: prune_recording
-- Throw away what a run was given.
delete from recording where workflow_id = :workflow_id and seq = (select seq from run where id = :run_id);

-- name: prune_recorded_texts
-- Throw away the long texts of it that no newer run was given.
delete from recorded_text where workflow_id = :workflow_id and newest = (select seq from run where id = :run_id);

-- name: prune_recording_size
-- How much of what a run was given can be thrown away.
select (select coalesce(sum(octet_length(c.given)), 0) from recording c
    where c.workflow_id = r.workflow_id and c.seq = r.seq)
  + (select coalesce(sum(octet_length(x.text)), 0) from recorded_text x
    where x.workflow_id = r.workflow_id and x.newest = r.seq) as bytes
from run r where r.id = :run_id;

-- name: prune_trace_size
-- How much a run called and logged.
select coalesce(sum(coalesce(octet_length(args), 0) + coalesce(octet_length(answer), 0) + coalesce(octet_length(error), 0)), 0)
  as bytes, count(*) as entries from trace
where workflow_id = :workflow_id and run_id = :run_id;

-- name: prune_event
-- Throw away the payload of an event that has ended.
update event set payload = '' where id = :event_id and status <> 'pending' and updated_at < :before;

-- name: prune_event_size
-- How much of an event that has ended can be thrown away: its payload, how runs had pinned it, what came too late long ago.
select octet_length(e.payload) as payload,
  (select coalesce(sum(octet_length(r.payload)), 0) from reservation r
    where r.workflow_id = e.workflow_id and r.event_id = e.id) as pinned,
  (select coalesce(sum(octet_length(v.payload)), 0) from event_revision v
    where v.workflow_id = e.workflow_id and v.event_id = e.id and v.created_at < :before) as held,
  (select count(*) from event_revision v
    where v.workflow_id = e.workflow_id and v.event_id = e.id and v.created_at < :before) as revisions
from event e where e.id = :event_id;

-- name: prune_reservations
-- The same for how runs had pinned it.
update reservation set payload = '' where workflow_id = :workflow_id and event_id = :event_id and payload <> '';

-- name: prune_revisions
-- Throw away payloads that came too late, long ago.
delete from event_revision where workflow_id = :workflow_id and event_id = :event_id and created_at < :before;
