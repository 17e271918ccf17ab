-- Statements on inputs, events, their causes and reservations.

-- name: input_find
-- The input that a source already told of.
select id from input
where workflow_id = :workflow_id and source = :source and type = :type and external_id = :external_id;

-- name: input_exists
-- The source of an input, if its id belongs to this workflow.
select source from input where workflow_id = :workflow_id and id = :input_id;

-- name: input_by_id
-- One input.
select * from input where id = :input_id;

-- name: input_insert
-- A new input; one that exists keeps its id and its first title.
insert into input (workflow_id, seq, id, source, type, external_id, title, status, created_by, created_at, updated_at)
values (:workflow_id, :seq, :input_id, :source, :type, :external_id, :title, 'active', :run_id, :now, :now)
on conflict (workflow_id, source, type, external_id) do nothing;

-- name: input_skip
-- A person decides that nothing more shall come of an input.
update input set status = 'skipped', updated_at = :now
where id = :input_id and status = 'active';

-- name: input_take_up
-- A person has the item that a skipped input stands for worked on once more.
update input set status = 'active', updated_at = :now where id = :input_id and status = 'skipped';

-- name: event_find
-- An event by its address.
select * from event where workflow_id = :workflow_id and topic = :topic and message_id = :message_id;

-- name: event_by_id
-- An event by its id.
select * from event where id = :event_id;

-- name: event_insert
-- A new event, unless there is one of that address.
insert into event (workflow_id, seq, id, topic, message_id, payload, status, created_by, created_at, updated_at)
values (:workflow_id, :seq, :event_id, :topic, :message_id, :payload, 'pending', :run_id, :now, :now)
on conflict (workflow_id, topic, message_id) do nothing;

-- name: event_revise
-- Last write wins while nobody has taken the event.
update event set payload = :payload, revision = revision + 1, updated_at = :now
where id = :event_id and status = 'pending' and reserved_by is null;

-- name: event_revision_latest
-- The newest payload that came after an event was frozen.
select revision, payload from event_revision where workflow_id = :workflow_id and event_id = :event_id
order by revision desc limit 1;

-- name: event_revision_insert
-- A payload that came after the event was frozen: kept and shown, not used.
insert into event_revision (workflow_id, event_id, revision, payload, created_by, created_at)
values (:workflow_id, :event_id, :revision, :payload, :run_id, :now);

-- name: event_adopt
-- A released event takes the newest payload that came meanwhile.
update event set payload = :payload, revision = :revision, updated_at = :now
where id = :event_id and revision < :revision;

-- name: cause_insert
-- Tie an event to an input behind it; ties are never cut.
insert into event_cause (workflow_id, event_id, input_id) values (:workflow_id, :event_id, :input_id)
on conflict (workflow_id, event_id, input_id) do nothing;

-- name: cause_of_run
-- The inputs behind everything that a run reserved; from the few reservations to their causes, never the other way.
select c.input_id from reservation r cross join event_cause c
where r.workflow_id = :workflow_id and r.run_id = :run_id
  and c.workflow_id = r.workflow_id and c.event_id = r.event_id;

-- name: event_peek
-- Waiting events of a topic, in the order in which they came.
select message_id, payload from event
where workflow_id = :workflow_id and topic = :topic and status = 'pending' and reserved_by is null
order by seq limit :limit;

-- name: event_waiting
-- An event by its address, if it waits.
select id as event_id, topic, message_id, attempt, payload from event
where workflow_id = :workflow_id and topic = :topic and message_id = :message_id
  and status = 'pending' and reserved_by is null;

-- name: event_reserve
-- Pin an event for a run; only one that waits can be pinned.
update event set reserved_by = :run_id, updated_at = :now
where id = :event_id and status = 'pending' and reserved_by is null;

-- name: reservation_insert
-- The event as it was when it was pinned.
insert into reservation (workflow_id, run_id, position, event_id, topic, message_id, attempt, payload)
values (:workflow_id, :run_id, :position, :event_id, :topic, :message_id, :attempt, :payload);

-- name: reservation_of_run
-- What a run pinned, in its own order.
select event_id, topic, message_id, attempt, payload from reservation
where workflow_id = :workflow_id and run_id = :run_id order by position;

-- name: reservation_copy
-- A retry pins the same events in the same form.
insert into reservation (workflow_id, run_id, position, event_id, topic, message_id, attempt, payload)
select workflow_id, :new_run_id, position, event_id, topic, message_id, attempt, payload
from reservation where workflow_id = :workflow_id and run_id = :run_id;

-- name: event_hand_over
-- The events of one run now belong to the run that carries on; they are never free in between.
update event set reserved_by = :new_run_id, updated_at = :now where reserved_by = :run_id;

-- name: event_release
-- The events of a run that was given up wait again.
update event set reserved_by = null, updated_at = :now where reserved_by = :run_id returning id, topic;

-- name: event_end_reserved
-- A run commits: its events are consumed, or skipped.
update event set status = :target, reserved_by = null, updated_at = :now
where reserved_by = :run_id and status = 'pending';

-- name: event_skip
-- A person skips an event that nobody has taken.
update event set status = 'skipped', updated_at = :now
where id = :event_id and status = 'pending' and reserved_by is null;

-- name: event_reprocess
-- A person wants an ended event processed once more; it is a new attempt.
update event set status = 'pending', attempt = attempt + 1, updated_at = :now
where id = :event_id and status in ('consumed', 'skipped') returning workflow_id, topic;

-- name: event_of_skipped_inputs
-- Waiting events of an input whose causes are all skipped.
select e.id from event_cause c join event e on e.id = c.event_id
where c.workflow_id = :workflow_id and c.input_id = :input_id and e.status = 'pending' and e.reserved_by is null
  and not exists (select 1 from event_cause o join input i on i.id = o.input_id
    where o.workflow_id = c.workflow_id and o.event_id = e.id and i.status = 'active')
order by e.seq;
