-- What people look at. None of these changes anything. Where the order of a join matters, `cross join` fixes it: without
-- statistics SQLite takes any index that begins with the workflow for a good one, and reads all of that workflow.

-- name: look_inputs
-- The newest inputs, newest first, with whether work caused by them still waits and whether a person is needed.
select * from input_standing where workflow_id = :workflow_id order by seq desc limit :limit;

-- name: look_input
-- One input, in the same form.
select * from input_standing where id = :input_id;

-- name: look_items
-- The newest items of a workflow, newest first.
select * from item_standing where workflow_id = :workflow_id order by seq desc limit :limit;

-- name: look_item
-- One item, with the open run that is working on it, if one does.
select * from item_standing where id = :item_id;

-- name: look_item_of_input
-- The item that an input stands for, if it does.
select * from item_standing where input_id = :input_id;

-- name: look_items_left
-- Items that their routine began, did not finish, and no longer has in hand, oldest first.
select * from item_standing
where status in ('processing', 'failed', 'needs_attention') and status = 'failed' and held_by is null
  and (:workflow_id is null or workflow_id = :workflow_id) order by updated_at, id;

-- name: look_runs_of_item
-- Every run that worked on an item, oldest first, with the item's attempt in which it did.
select r.*, x.attempt as processed_attempt from item_run x join run r on r.id = x.run_id
where x.workflow_id = :workflow_id and x.item_id = :item_id order by r.seq;

-- name: look_mutations_of_item
-- What was sent for an item in all its attempts, oldest first.
select * from mutation where item_id = :item_id order by seq;

-- name: look_items_of_run
-- The items that a run worked on, in its order, each as it stands now and with the attempt that the run worked in.
select t.*, x.attempt as worked_attempt from item_run x join item t on t.id = x.item_id
where x.workflow_id = :workflow_id and x.run_id = :run_id order by x.seq;

-- name: look_mutations_of_run
-- What a run sent, oldest first.
select * from mutation where workflow_id = :workflow_id and run_id = :run_id order by ordinal;

-- name: look_mutations
-- The newest mutations of a workflow, newest first.
select * from mutation where workflow_id = :workflow_id order by seq desc limit :limit;

-- name: look_contradicted
-- Mutations with a sign against their recorded outcome that nobody has seen yet, oldest sign first.
select * from mutation where contradicted_at is not null order by contradicted_at, workflow_id, seq;

-- name: look_mutations_of_input
-- What went out because of an input.
select distinct m.* from event_cause c cross join reservation r cross join mutation m
where c.workflow_id = :workflow_id and c.input_id = :input_id
  and r.workflow_id = c.workflow_id and r.event_id = c.event_id and r.attempt = c.attempt and r.revision >= c.revision
  and m.workflow_id = r.workflow_id and m.run_id = r.run_id
union select m.* from item t join mutation m on m.item_id = t.id
where t.workflow_id = :workflow_id and t.input_id = :input_id order by seq;

-- name: look_inputs_of_mutation
-- What came in that led to a mutation.
select c.input_id from mutation m cross join reservation_cause c
where m.id = :mutation_id and c.workflow_id = m.workflow_id and c.run_id = m.run_id
union select t.input_id from mutation m join item t on t.id = m.item_id where m.id = :mutation_id order by input_id;

-- name: look_events
-- The newest events of a workflow, newest first.
select e.* from event_standing e
where e.workflow_id = :workflow_id and (:topic is null or e.topic = :topic) and (:status is null or e.status = :status)
order by e.seq desc limit :limit;

-- name: look_events_of_input
-- Events that an input caused, however many hops away.
select e.* from event_standing e
where e.id in (select x.event_id from event_cause x where x.workflow_id = :workflow_id and x.input_id = :input_id
  union select h.event_id from held_cause h join event k on k.id = h.event_id and k.attempt = h.attempt
  where h.workflow_id = :workflow_id and h.input_id = :input_id)
order by e.seq;

-- name: look_held_of_event
-- The payloads that came after the one that an event has, oldest first, and the inputs behind each.
select v.event_id, v.revision, v.payload, v.created_by, v.created_at,
  (select string_agg(cast(h.input_id as text), ',') from held_cause h
    where h.workflow_id = v.workflow_id and h.event_id = v.event_id and h.revision = v.revision) as causes
from event_revision v where v.workflow_id = :workflow_id and v.event_id = :event_id and v.revision > :revision
order by v.revision;

-- name: look_held_of_input
-- The payloads of an input that came after their event was taken or had ended, oldest first; one may be kept no longer.
select h.event_id, h.revision, v.payload, v.created_by, v.created_at, cast(h.input_id as text) as causes,
  e.topic, e.message_id, e.status, e.reserved_by
from held_cause h join event e on e.id = h.event_id
left join event_revision v on v.workflow_id = h.workflow_id and v.event_id = h.event_id and v.revision = h.revision
where h.workflow_id = :workflow_id and h.input_id = :input_id order by e.seq, h.revision;

-- name: look_event
-- One event, in the same form.
select e.* from event_standing e where e.id = :event_id;

-- name: look_runs
-- The newest runs of a workflow, newest first.
select * from run where workflow_id = :workflow_id order by seq desc limit :limit;

-- name: look_trace
-- What a run did.
select * from trace where workflow_id = :workflow_id and run_id = :run_id order by position;

-- name: look_pending
-- How much waits in topics that somebody subscribes to, and how much of it is old.
select count(*) as pending, coalesce(sum(case when e.created_at < :old then 1 else 0 end), 0) as stale
from topic t cross join event e
where t.workflow_id = :workflow_id and t.subscriber is not null
  and e.workflow_id = t.workflow_id and e.topic = t.name and e.status = 'pending';

-- name: look_event_at
-- One event by its number.
select * from event where workflow_id = :workflow_id and seq = :seq;

-- name: look_left
-- How often a consumer has looked since an event came to wait, and reserved nothing or only newer events: of the newest
-- thousand runs of its workflow.
select count(*) as looks, max(r.updated_at) as last_at from (
  select * from run where workflow_id = :workflow_id and seq > :seq order by seq desc limit 1000) r
where r.handler = :handler and r.status = 'committed' and r.created_at >= :since_at and not exists (
  select 1 from reservation v cross join event e
  where v.workflow_id = r.workflow_id and v.run_id = r.id and e.id = v.event_id and e.seq <= :seq);

-- name: look_logs
-- What the runs of a workflow logged, oldest first, after a place in it.
select x.*, r.handler, r.seq as run_seq from run r
join trace x on x.workflow_id = r.workflow_id and x.run_id = r.id
where r.workflow_id = :workflow_id and (r.seq > :seq or (r.seq = :seq and x.position > :position))
order by r.seq, x.position limit :limit;

-- name: look_logs_last
-- The newest of that, newest first.
select x.*, r.handler, r.seq as run_seq from run r
join trace x on x.workflow_id = r.workflow_id and x.run_id = r.id
where r.workflow_id = :workflow_id order by r.seq desc, x.position desc limit :limit;

-- name: look_ids_beginning
-- Ids of one kind that lie between two: those that have the same beginning.
select id from run where :kind = 'run' and id >= :first_id and id <= :last_id
union all select id from input where :kind = 'input' and id >= :first_id and id <= :last_id
union all select id from event where :kind = 'event' and id >= :first_id and id <= :last_id
union all select id from mutation where :kind = 'mutation' and id >= :first_id and id <= :last_id
union all select id from item where :kind = 'item' and id >= :first_id and id <= :last_id
union all select id from approval where :kind = 'approval' and id >= :first_id and id <= :last_id
union all select id from repair where :kind = 'repair' and id >= :first_id and id <= :last_id
union all select id from proposal where :kind = 'proposal' and id >= :first_id and id <= :last_id limit :limit;

-- name: look_lineage
-- Every run of a lineage, oldest first; with the plus the order does not choose the index.
select * from run where +workflow_id = :workflow_id
  and (id = :lineage or (lineage = :lineage and retry_of is not null)) order by +seq;

-- name: look_mutations_of_lineage
-- What the runs of a lineage sent, oldest first.
select * from mutation where +workflow_id = :workflow_id
  and (run_id = :lineage or (lineage = :lineage and run_id <> lineage)) order by +seq;

-- name: look_approvals_of_lineage
-- What people were asked to approve for a lineage, oldest first.
select * from approval where workflow_id = :workflow_id and run_id in (select r.id from run r
  where r.id = :lineage or (r.lineage = :lineage and r.retry_of is not null)) order by seq;

-- name: look_inputs_of_run
-- The inputs behind what a run pinned, as people know them.
select i.id, i.title, i.seq from reservation_cause c cross join input i
where c.workflow_id = :workflow_id and c.run_id = :run_id and i.id = c.input_id
union select i.id, i.title, i.seq from item_run x join item t on t.id = x.item_id join input i on i.id = t.input_id
where x.workflow_id = :workflow_id and x.run_id = :run_id order by seq;

-- name: look_inputs_of_event
-- The inputs behind an event, as people know them.
select i.id, i.title, i.seq from event e join event_cause c on c.event_id = e.id and c.attempt = e.attempt
join input i on i.id = c.input_id where e.workflow_id = :workflow_id and e.id = :event_id
union select i.id, i.title, i.seq from event e join held_cause h on h.event_id = e.id and h.attempt = e.attempt
join input i on i.id = h.input_id where e.workflow_id = :workflow_id and e.id = :event_id order by 3;

-- name: look_runs_of_event
-- Every run that pinned an event, oldest first, with the event's attempt that it processed.
select r.*, v.attempt as processed_attempt from reservation v join run r on r.id = v.run_id
where v.workflow_id = :workflow_id and v.event_id = :event_id order by r.seq;

-- name: look_topic
-- Who takes the events of a topic, if anybody does.
select subscriber from topic where workflow_id = :workflow_id and name = :topic;

-- name: look_repairs
-- Every try to mend a workflow's script, oldest first.
select * from repair where workflow_id = :workflow_id order by seq limit :limit;

-- name: look_repairs_of_lineage
-- The tries to mend what a lineage failed in, oldest first.
select * from repair where workflow_id = :workflow_id and lineage = :lineage order by seq;

-- name: look_grants
-- Every grant of a workflow, with who set it: by an act of its own, or with the deploy of that moment.
select g.capability, g.rule, g.account, g.configured, g.updated_at,
  (select a.actor from action a where a.workflow_id = g.workflow_id and a.at = g.updated_at
    and ((a.act = 'grant' and a.subject = g.capability) or a.act = 'deploy') order by a.seq desc limit 1) as actor
from grant_rule g where g.workflow_id = :workflow_id order by g.capability;

-- name: look_versions
-- Every version of a workflow's script without its text, newest first, with who deployed it.
select s.major, s.minor, s.hash, s.author, s.impact, s.activated_at, length(s.source) as length,
  (select a.actor from action a where a.workflow_id = s.workflow_id and a.act = 'deploy'
    and a.subject like '% ' || s.major || '.' || s.minor order by a.seq limit 1) as actor
from script s where s.workflow_id = :workflow_id order by s.major desc, s.minor desc;

-- name: look_topics
-- Every topic that a workflow ever had, by name.
select name, subscriber from topic where workflow_id = :workflow_id order by name;

-- name: look_oldest_pending
-- The event that has waited longest in a topic that somebody takes, over all workflows.
select e.id, e.topic, e.created_at, w.id as workflow_id, w.name as workflow from topic t
join workflow w on w.id = t.workflow_id
join event e on e.workflow_id = t.workflow_id and e.seq = (select min(p.seq) from event p
  where p.workflow_id = t.workflow_id and p.topic = t.name and p.status = 'pending')
where t.subscriber is not null order by e.created_at, e.id limit 1;

-- name: look_last_began
-- When each handler last began, as far as the newest runs tell.
select handler, max(created_at) as began_at from (
  select r.handler, r.created_at from run r where r.workflow_id = :workflow_id order by r.seq desc limit :runs) newest
group by handler;

-- name: look_host
-- One host.
select * from host where id = :host;

-- name: look_hosts
-- The newest hosts of this ledger, newest first.
select * from host order by epoch desc limit :limit;
