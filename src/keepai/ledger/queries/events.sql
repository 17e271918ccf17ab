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
-- A person skips an input.
update input set status = 'skipped', updated_at = :now
where id = :input_id and status = 'active';

-- name: input_done
-- An input of which nothing waits, and that nobody skipped.
select 1 as done from input_standing where id = :input_id and status = 'active'
  and not waiting and not item_skipped and not late;

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
insert into event (workflow_id, seq, id, topic, message_id, payload, status, created_by, depth, created_at, updated_at)
values (:workflow_id, :seq, :event_id, :topic, :message_id, :payload, :status, :run_id, :depth, :now, :now)
on conflict (workflow_id, topic, message_id) do nothing;

-- name: event_revise
-- Last write wins while nobody has taken the event.
update event set payload = :payload, revision = newest + 1, newest = newest + 1, updated_at = :now,
  depth = case when depth < :depth then :depth else depth end
where id = :event_id and status = 'pending' and reserved_by is null;

-- name: event_revision_latest
-- The newest payload that came after an event was frozen, if it is still kept.
select revision, payload from event_revision
where workflow_id = :workflow_id and event_id = :event_id and revision > :revision order by revision desc limit 1;

-- name: event_revision_insert
-- A payload that came after the event was frozen: kept and shown, not used.
insert into event_revision (workflow_id, event_id, revision, payload, created_by, created_at)
values (:workflow_id, :event_id, :revision, :payload, :run_id, :now);

-- name: event_revision_trim
-- Of the payloads that came too late for one event only the newest are kept; how large the others were.
delete from event_revision where workflow_id = :workflow_id and event_id = :event_id and revision <= (
  select v.revision from event_revision v where v.workflow_id = :workflow_id and v.event_id = :event_id
  order by v.revision desc limit 1 offset :revisions_max)
returning octet_length(payload) as bytes;

-- name: event_number
-- One more revision of an event has come.
update event set newest = :revision where id = :event_id;

-- name: event_adopt
-- A released event takes the newest payload that came meanwhile.
update event set payload = :payload, revision = :revision, updated_at = :now
where id = :event_id and revision < :revision;

-- name: cause_insert
-- Tie an event to an input behind it; ties are never cut.
insert into event_cause (workflow_id, event_id, attempt, input_id, revision)
values (:workflow_id, :event_id, :attempt, :input_id, :revision)
on conflict (event_id, workflow_id, attempt, input_id) do nothing;

-- name: cause_known
-- Whether an input is behind an event in an attempt.
select 1 as known from event_cause
where workflow_id = :workflow_id and event_id = :event_id and attempt = :attempt and input_id = :input_id;

-- name: cause_repeat
-- An event that is processed once more as it is has the same inputs behind it.
insert into event_cause (workflow_id, event_id, attempt, input_id, revision)
select c.workflow_id, c.event_id, c.attempt + 1, c.input_id, c.revision from event_cause c
where c.workflow_id = :workflow_id and c.event_id = :event_id and c.attempt = :attempt;

-- name: cause_of_run
-- The inputs behind everything that a run reserved; from the few reservations to their causes, never the other way.
select input_id from reservation_cause where workflow_id = :workflow_id and run_id = :run_id;

-- name: held_cause_insert
-- Tie a payload that came too late to an input behind it.
insert into held_cause (workflow_id, event_id, revision, input_id, attempt)
values (:workflow_id, :event_id, :revision, :input_id, :attempt)
on conflict (event_id, workflow_id, revision, input_id) do nothing;

-- name: held_cause_take
-- The inputs behind the payloads that an event takes are behind the event from now on: of one revision, or of all that
-- came while a run had reserved it.
insert into event_cause (workflow_id, event_id, attempt, input_id, revision)
select h.workflow_id, h.event_id, :attempt, h.input_id, :revision from held_cause h
where h.workflow_id = :workflow_id and h.event_id = :event_id and (h.revision = :revision or h.attempt = :reserved_in)
on conflict (event_id, workflow_id, attempt, input_id) do nothing;

-- name: held_cause_taken
-- They are no longer behind a payload that came too late.
delete from held_cause
where workflow_id = :workflow_id and event_id = :event_id and (revision = :revision or attempt = :reserved_in);

-- name: event_peek
-- Waiting events of a topic after a place in it, in the order in which they came.
select seq, topic, message_id, attempt, revision, payload from event
where workflow_id = :workflow_id and topic = :topic and status = 'pending' and reserved_by is null and held_by is null and seq > :after
order by seq limit :limit;

-- name: event_open_in_topic
-- Events of a topic that are not done with, also those that a run has reserved, each with the title of an input behind it.
select e.id, e.topic, e.message_id, e.reserved_by,
  (select i.title from event_cause c join input i on i.id = c.input_id
    where c.workflow_id = e.workflow_id and c.event_id = e.id order by c.input_id limit 1) as title
from event e where e.workflow_id = :workflow_id and e.topic = :topic and e.status = 'pending'
order by e.seq limit :limit;

-- name: event_open_count
-- How many they are.
select count(*) as waiting from event where workflow_id = :workflow_id and topic = :topic and status = 'pending';

-- name: event_waiting_deepest
-- The waiting event of a topic that is furthest from the producer that began its chain.
select id as event_id, depth from event
where workflow_id = :workflow_id and topic = :topic and status = 'pending' and reserved_by is null and held_by is null
order by depth desc, seq desc limit 1;

-- name: event_source
-- Who published an event, and where.
select e.workflow_id, e.topic, r.id as run_id, r.handler from event e join run r on r.id = e.created_by
where e.id = :event_id;

-- name: event_reserve
-- Pin an event for a run; only one that waits can be pinned.
update event set reserved_by = :run_id, updated_at = :now
where workflow_id = :workflow_id and topic = :topic and message_id = :message_id
  and status = 'pending' and reserved_by is null and held_by is null
returning id as event_id, topic, message_id, attempt, revision, payload, depth;

-- name: event_skipped_since
-- Whether a person skipped an event, or any input, since a run began; while that run is open, only people skip what it
-- has not reserved.
select 1 as skipped from action a
where a.workflow_id = :workflow_id and (a.act = 'skip_input' or (a.act = 'skip_event' and a.subject_id = :event_id))
  and a.entry > (select min(s.entry) from account_subject s where s.subject_id = :run_id) limit 1;

-- name: reservation_insert
-- The event as it was when it was pinned. Its payload stays where it is: see reservation_keep.
insert into reservation (workflow_id, run_id, position, event_id, topic, message_id, attempt, revision)
values (:workflow_id, :run_id, :position, :event_id, :topic, :message_id, :attempt, :revision);

-- name: reservation_keep
-- An event is about to get another payload: those who had pinned it keep the one that it has.
update reservation set payload = (select e.payload from event e where e.id = :event_id)
where workflow_id = :workflow_id and event_id = :event_id and payload is null;

-- name: reservation_of_run
-- What a run pinned, in its own order.
select r.event_id, r.topic, r.message_id, r.attempt, r.revision, coalesce(r.payload, e.payload) as payload, e.depth
from reservation r join event e on e.id = r.event_id
where r.workflow_id = :workflow_id and r.run_id = :run_id order by r.position;

-- name: reservation_copy
-- A retry pins the same events in the same form.
insert into reservation (workflow_id, run_id, position, event_id, topic, message_id, attempt, revision, payload)
select workflow_id, :new_run_id, position, event_id, topic, message_id, attempt, revision, payload
from reservation where workflow_id = :workflow_id and run_id = :run_id;

-- name: reservation_bytes
-- How much the events that a run pinned take, as it pinned them.
select count(*) as events, coalesce(sum(coalesce(octet_length(payload), 0) + octet_length(message_id)), 0) as bytes
from reservation where workflow_id = :workflow_id and run_id = :run_id;

-- name: event_hand_over
-- The events of one run now belong to the run that carries on; they are never free in between.
update event set reserved_by = :new_run_id, updated_at = :now where reserved_by = :run_id;

-- name: event_release
-- The events of a run that was given up wait again.
update event set reserved_by = null, updated_at = :now where reserved_by = :run_id
returning id, topic, attempt, revision;

-- name: event_reserved_by
-- The events that a run has reserved.
select id from event where reserved_by = :run_id and status = 'pending';

-- name: event_end_reserved
-- A run commits: its events are consumed, or skipped.
update event set status = :target, reserved_by = null, updated_at = :now
where reserved_by = :run_id and status = 'pending';

-- name: event_skip
-- A person skips an event that nobody has taken.
update event set status = 'skipped', held_by = null, updated_at = :now
where id = :event_id and status = 'pending' and reserved_by is null;

-- name: event_reprocess
-- A person wants an ended event processed once more; it is a new attempt.
update event set status = 'pending', attempt = attempt + 1, updated_at = :now
where id = :event_id and status in ('consumed', 'skipped') returning id, topic, attempt, revision;

-- name: event_of_skipped_inputs
-- Waiting events of an input whose causes are all skipped.
select e.id from event_cause c join event e on e.id = c.event_id and e.attempt = c.attempt
where c.workflow_id = :workflow_id and c.input_id = :input_id and e.status = 'pending' and e.reserved_by is null
  and not exists (select 1 from event_cause o join input i on i.id = o.input_id
    where o.workflow_id = c.workflow_id and o.event_id = e.id and o.attempt = e.attempt and i.status = 'active')
order by e.seq;

-- name: event_reserved_of_input
-- An event of an input that a run has reserved, and the run.
select e.id, e.reserved_by from event_cause c join event e on e.id = c.event_id and e.attempt = c.attempt
where c.workflow_id = :workflow_id and c.input_id = :input_id and e.reserved_by is not null
union all select e.id, e.reserved_by from held_cause h join event e on e.id = h.event_id and e.attempt = h.attempt
where h.workflow_id = :workflow_id and h.input_id = :input_id and e.reserved_by is not null limit 1;

-- name: input_skipped_any
-- Whether a person has skipped any input of a workflow.
select 1 as found from input where workflow_id = :workflow_id and status = 'skipped' limit 1;

-- name: input_take_up_of_event
-- A person has an event processed once more whose inputs were all skipped: they are no longer.
update input set status = 'active', updated_at = :now
where status = 'skipped' and id in (select c.input_id from event_cause c
    where c.workflow_id = :workflow_id and c.event_id = :event_id and c.attempt = :attempt)
  and not exists (select 1 from event_cause c join input i on i.id = c.input_id
    where c.workflow_id = :workflow_id and c.event_id = :event_id and c.attempt = :attempt and i.status = 'active')
returning id;
