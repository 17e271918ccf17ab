-- Statements on recordings: what each step of a run was given.

-- name: recording_insert
-- What a step was given; a step that runs again in its run was given something new.
insert into recording (workflow_id, seq, step, given) values (:workflow_id, :seq, :step, :given)
on conflict (workflow_id, seq, step) do update set given = excluded.given;

-- name: recorded_text_insert
-- A long text that a step was given, once for all runs of a workflow.
insert into recorded_text (workflow_id, hash, newest, text) values (:workflow_id, :hash, :newest, :text)
on conflict (workflow_id, hash) do update set newest = excluded.newest;

-- name: recording_of_run
-- What the steps of a run were given.
select step, given from recording where workflow_id = :workflow_id and seq = :seq;

-- name: recorded_text_get
-- A long text by its hash.
select text from recorded_text where workflow_id = :workflow_id and hash = :hash;

-- name: recording_oldest_kept
-- The number of the oldest run that keeps its recordings, if there are more than so many runs with some.
select seq from (select distinct seq from recording where workflow_id = :workflow_id) as recorded
order by seq desc limit 1 offset :most;

-- name: recording_trim
-- Throw away what a run and all before it were given.
delete from recording where workflow_id = :workflow_id and seq <= :seq;

-- name: recorded_text_trim
-- Throw away the long texts that no newer run was given.
delete from recorded_text where workflow_id = :workflow_id and newest <= :seq;

-- name: recorded_runs
-- The newest runs of a major version that ended well and have a recording of their own or of one that they carry on.
select r.* from run r
where r.workflow_id = :workflow_id and r.major = :major and r.status = 'committed' and r.created_at >= :since_at
  and exists (select 1 from recording c where c.workflow_id = r.workflow_id and c.seq = r.seq)
order by r.seq desc limit :limit;

-- name: event_by_seq
-- An event by its number.
select * from event where workflow_id = :workflow_id and seq = :seq;

-- name: event_pinned_as
-- The payload of an event in an earlier form, if a run pinned that.
select payload from reservation
where workflow_id = :workflow_id and event_id = :event_id and revision = :revision and payload is not null limit 1;

-- name: mutations_of_lineage
-- What a lineage sent, in order.
select m.*, i.external_id as item_name from mutation m left join item i on i.id = m.item_id
where +m.workflow_id = :workflow_id and (m.run_id = :lineage or (m.lineage = :lineage and m.run_id <> m.lineage))
order by m.seq;

-- name: item_attempt_of_lineage
-- The attempt in which a lineage worked on an item.
select max(x.attempt) as attempt from item_run x join run r on r.id = x.run_id
where x.workflow_id = :workflow_id and x.item_id = :item_id and (r.id = :lineage or r.lineage = :lineage);

-- name: target_applied
-- Whether a workflow's mutations have gone to a target before.
select id from mutation where workflow_id = :workflow_id and connector = :connector and operation = :operation
  and account = :account and target = :target and status = 'applied' limit 1;
