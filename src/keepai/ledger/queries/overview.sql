-- Counts for the first page: each from an index, so that they stay fast however much came in.

-- name: look_inputs_by_kind
-- How much came in of each source and type.
select source, type, count(*) as total from input where workflow_id = :workflow_id group by source, type;

-- name: look_inputs_waiting
-- The inputs of which something is not finished: events that a consumer will take, items under way.
select distinct i.workflow_id, i.seq, i.source, i.type from topic t
cross join event e cross join event_cause c cross join input i
where t.workflow_id = :workflow_id and t.subscriber is not null
  and e.workflow_id = t.workflow_id and e.topic = t.name and e.status = 'pending'
  and c.workflow_id = e.workflow_id and c.event_id = e.id and c.attempt = e.attempt and i.id = c.input_id
union select i.workflow_id, i.seq, i.source, i.type from topic t
cross join event e cross join held_cause h cross join input i
where t.workflow_id = :workflow_id and t.subscriber is not null
  and e.workflow_id = t.workflow_id and e.topic = t.name and e.status = 'pending'
  and h.workflow_id = e.workflow_id and h.event_id = e.id and h.attempt = e.attempt and i.id = h.input_id
union select i.workflow_id, i.seq, i.source, i.type from item x join input i on i.id = x.input_id
where x.workflow_id = :workflow_id and x.status in ('processing', 'failed', 'needs_attention')
limit :limit;

-- name: look_inputs_skipped
-- How many of each source and type a person skipped.
select source, type, count(*) as skipped from input
where workflow_id = :workflow_id and status = 'skipped' group by source, type;

-- name: look_inputs_late
-- How many of each source and type came after their event was finished, and nothing else of them waits. The inner limit
-- keeps SQLite from going through all inputs in the order of the groups.
select source, type, count(*) as late from (select source, type from input_standing
  where workflow_id = :workflow_id and id in (select h.input_id from held_cause h where h.workflow_id = :workflow_id)
    and late and not waiting and status = 'active' and not item_skipped limit :limit) x group by source, type;

-- name: look_mutations_by_connector
-- How many mutations went through each connector.
select connector, count(*) as total from mutation where workflow_id = :workflow_id group by connector;

-- name: look_mutations_ended
-- How many mutations of each connector ended without an effect.
select connector, status, count(*) as number from mutation
where workflow_id = :workflow_id and status in ('failed', 'skipped') group by connector, status;

-- name: look_mutation_open
-- The mutation of which nobody knows yet what becomes of it, if there is one.
select connector, status from mutation
where workflow_id = :workflow_id and (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate');

-- name: look_oldest_waiting
-- Since when the oldest event of each topic that somebody takes waits.
select t.workflow_id, (select e.created_at from event e
    where e.workflow_id = t.workflow_id and e.topic = t.name and e.status = 'pending' order by e.seq limit 1) as since
from topic t where t.subscriber is not null;
