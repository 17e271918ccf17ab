-- Statements on workflows, scripts, topics, handlers and grants.

-- name: workflow_tick
-- Raise a workflow's sequence and the bytes that are kept for it; the row says whether a run may begin. A parked run's
-- bytes are added to its workflow when it ends, and what it keeps until then counts too.
update workflow set sequence = sequence + :count, event_bytes = event_bytes + :events, run_bytes = run_bytes + :runs,
  input_bytes = input_bytes + :inputs
where id = :workflow_id
returning id, sequence, status, major, minor, waiting, parked, event_bytes + run_bytes + input_bytes
  + case when parked = 0 then 0 else (
    select coalesce(sum(r.bytes), 0) from parked p cross join run r
    where p.workflow_id = :workflow_id and r.id = p.run_id) end as bytes;

-- name: workflow_bytes
-- What is kept for a workflow: its events, its inputs, and its runs, with what the parked ones keep so far.
select w.name, w.event_bytes, w.input_bytes, w.run_bytes + (
  select coalesce(sum(r.bytes), 0) from parked p cross join run r
  where p.workflow_id = :workflow_id and r.id = p.run_id) as run_bytes
from workflow w where w.id = :workflow_id;

-- name: workflow_insert
-- A new workflow.
insert into workflow (id, name, status, major, minor, sequence, created_at, updated_at)
values (:workflow_id, :name, 'active', :major, :minor, 0, :now, :now);

-- name: workflow_activate
-- From now on, new runs use this version; only if the version before is still the one that it was made for.
update workflow set major = :major, minor = :minor, updated_at = :now
where id = :workflow_id and major = :before_major and minor = :before_minor;

-- name: workflow_move
-- A person changes whether a workflow runs.
update workflow set status = :target, updated_at = :now
where id = :workflow_id and status = :source;

-- name: workflow_by_id
-- One workflow.
select * from workflow where id = :workflow_id;

-- name: workflow_by_name
-- One workflow, by the name its script gives it.
select * from workflow where name = :name;

-- name: workflow_all
-- Every workflow, oldest first.
select * from workflow order by created_at, id;

-- name: script_insert
-- A new version of a script.
insert into script (workflow_id, major, minor, source, hash, manifest, author, impact, created_at, activated_at)
values (:workflow_id, :major, :minor, :source, :hash, :manifest, :author, :impact, :now, :now);

-- name: script_get
-- One version of a script.
select * from script where workflow_id = :workflow_id and major = :major and minor = :minor;

-- name: script_all
-- Every version of a workflow's script, oldest first.
select * from script where workflow_id = :workflow_id order by major, minor;

-- name: certificate_put
-- Keep has tried a script and found no fault; what it was tried with before no longer counts.
insert into certificate (script_hash, facts, made_by, made_at) values (:script_hash, :facts, :actor, :now)
on conflict (script_hash) do update set facts = excluded.facts, made_by = excluded.made_by, made_at = excluded.made_at;

-- name: certificate_get
-- The certificate of a script.
select * from certificate where script_hash = :script_hash;

-- name: topic_upsert
-- Declare a topic and who takes its events.
insert into topic (workflow_id, name, subscriber) values (:workflow_id, :name, :subscriber)
on conflict (workflow_id, name) do update set subscriber = excluded.subscriber;

-- name: topic_unsubscribe_all
-- Before a version is activated: nobody subscribes to anything.
update topic set subscriber = null where workflow_id = :workflow_id;

-- name: topic_get
-- One topic.
select * from topic where workflow_id = :workflow_id and name = :topic;

-- name: topic_touch
-- Something in this topic arrived, was revised, released or reprocessed.
update topic set touched = :sequence where workflow_id = :workflow_id and name = :topic;

-- name: topic_stranded
-- Pending events per topic that has a subscriber now.
select t.name as topic, count(*) as pending from topic t
join event e on e.workflow_id = t.workflow_id and e.topic = t.name and e.status = 'pending'
where t.workflow_id = :workflow_id and t.subscriber is not null group by t.name order by t.name;

-- name: handler_absent_all
-- Before a version is activated: no handler is present.
update handler_state set present = 0, updated_at = :now where workflow_id = :workflow_id;

-- name: handler_forget_absent
-- A handler that the active version does not have is never due.
update handler_state set next_run_at = null, wake_at = null, recheck_at = null, queued = 0
where workflow_id = :workflow_id and present = 0;

-- name: handler_rest_timed
-- On a copy on which something is tried: nothing begins by the clock.
update handler_state set next_run_at = null, queued = 0, updated_at = :now
where workflow_id = :workflow_id and kind <> 'consumer';

-- name: workflow_rest_others
-- On such a copy: no other workflow does anything.
update workflow set status = 'paused', updated_at = :now where id <> :workflow_id and status = 'active';

-- name: handler_upsert
-- A handler of the version being activated; its state is kept, and its due time unless the version has another.
insert into handler_state (workflow_id, handler, kind, present, next_run_at, updated_at)
values (:workflow_id, :handler, :kind, 1, :due_at, :now)
on conflict (workflow_id, handler) do update set kind = excluded.kind, present = 1,
  next_run_at = case when excluded.kind <> 'consumer' then coalesce(excluded.next_run_at, handler_state.next_run_at) end,
  observed = null, updated_at = excluded.updated_at;

-- name: handler_due
-- Everything that decides whether a handler is due: its own times, and its topics' oldest waiting event.
select * from handler_due where workflow_id = :workflow_id order by handler;

-- name: workflow_now
-- A workflow with each of its handlers, and everything that decides whether that is due; without any, one row of itself.
select w.id, w.name, w.status, w.major, w.minor, w.sequence, w.waiting, w.parked, h.*
from workflow w left join handler_due h on h.workflow_id = w.id where w.id = :workflow_id order by h.handler;

-- name: handler_get
-- One handler's durable state.
select * from handler_state where workflow_id = :workflow_id and handler = :handler;

-- name: handler_queue
-- A person says "run now".
update handler_state set queued = 1, updated_at = :now
where workflow_id = :workflow_id and present = 1 and kind <> 'consumer' and (:handler is null or handler = :handler)
returning handler;

-- name: handler_arrived
-- Something came in to a connector that it reads, perhaps before a moment. One that is due already runs anyway.
update handler_state set queued = 2, updated_at = :now
where workflow_id = :workflow_id and handler = :handler and present = 1 and queued = 0
  and (next_run_at is null or next_run_at > :now) and (:since is null or ran_at is null or ran_at < :since);

-- name: handler_started
-- A producer's or routine's run begins: what is due next is another run; a gap is remembered if it comes much too late.
update handler_state set queued = 0, ran_at = :now, next_run_at = coalesce(:next_run_at, next_run_at),
  gap_since_at = coalesce(:gap_since_at, gap_since_at), gap_until_at = coalesce(:gap_until_at, gap_until_at),
  updated_at = :now
where workflow_id = :workflow_id and handler = :handler;

-- name: handler_scheduled
-- A producer's or routine's run ended; when the next is due, unless a newer version has said so meanwhile.
update handler_state set next_run_at = :next_run_at, updated_at = :now
where workflow_id = :workflow_id and handler = :handler and exists
  (select 1 from workflow w where w.id = :workflow_id and w.major = :major and w.minor = :minor);

-- name: handler_committed
-- A consumer's run committed: what it saw, and when to look again, unless a newer version must look first.
update handler_state set observed = :observed, progressed = :progressed, wake_at = :wake_at,
  recheck_at = :recheck_at, updated_at = :now
where workflow_id = :workflow_id and handler = :handler and exists
  (select 1 from workflow w where w.id = :workflow_id and w.major = :major and w.minor = :minor);

-- name: handler_store
-- The state that a handler returned.
update handler_state set state = :state, updated_at = :now
where workflow_id = :workflow_id and handler = :handler;

-- name: grant_upsert
-- Allow, ask or deny one capability. What keep.toml says never takes the place of what a person said.
insert into grant_rule (workflow_id, capability, mode, rule, account, configured, seq, updated_at)
values (:workflow_id, :capability, :mode, :rule, :account, :configured, :seq, :now)
on conflict (workflow_id, capability) do update set mode = excluded.mode, rule = excluded.rule,
  account = excluded.account, configured = excluded.configured, seq = excluded.seq, updated_at = excluded.updated_at
where excluded.configured = 0 or grant_rule.configured = 1;

-- name: grant_all
-- Every grant of a workflow.
select capability, mode, rule, account, configured, seq from grant_rule where workflow_id = :workflow_id order by capability;

-- name: action_insert
-- What a person did.
insert into action (workflow_id, act, subject, subject_id, actor, detail, at, shown, entry)
values (:workflow_id, :act, :subject, :subject_id, :actor, :detail, :now, :shown, :entry);

-- name: action_same
-- The same act by the same person, of what was shown the same.
select * from action
where workflow_id = :workflow_id and act = :act and subject = :subject and actor = :actor and shown = :shown
order by seq;

-- name: account_last_of_input
-- The newest entry that tells of an event that an input caused, or for which it came too late, and the event.
select of_input.event_id, s.entry from (
  select c.event_id from event_cause c where c.workflow_id = :workflow_id and c.input_id = :input_id
  union select h.event_id from held_cause h where h.workflow_id = :workflow_id and h.input_id = :input_id) of_input
cross join account_subject s where s.subject_id = of_input.event_id order by s.entry desc limit 1;

-- name: account_last_of_item
-- The newest entry that tells of what was sent for an item, or of a run that worked on it, and which.
select of_item.id, s.entry from (
  select m.id from mutation m where m.item_id = :item_id
  union select x.run_id from item_run x where x.workflow_id = :workflow_id and x.item_id = :item_id) of_item
cross join account_subject s where s.subject_id = of_item.id order by s.entry desc limit 1;

-- name: action_all
-- What people did, oldest first.
select * from action where workflow_id = :workflow_id order by seq;

-- name: host_insert
-- A host begins to work on this ledger.
insert into host (epoch, id, machine, pid, started_at)
values ((select coalesce(max(epoch), 0) + 1 from host), :id, :machine, :pid, :now) returning epoch;

-- name: id_newest
-- The highest id of any kind; whatever a host makes is higher.
select max(id) as id from (
  select max(id) as id from host union all select max(id) from workflow union all select max(id) from run
  union all select max(id) from event union all select max(id) from input union all select max(id) from mutation
  union all select max(id) from item union all select max(id) from approval union all select max(id) from repair
  union all select max(id) from proposal) made;

-- name: ledger_reached
-- Which ledger this is, and how far it has come.
select (select id from host order by epoch limit 1) as ledger, (select coalesce(max(epoch), 0) from host) as epoch,
  (select coalesce(max(seq), 0) from account) as entries;

-- name: mark_found
-- What a ledger has where a mark says that something is: the host with that number, and the hash of that entry.
select (select id from host where epoch = :epoch) as host, (select chain from account where seq = :entries) as chain;

-- name: put_back_insert
-- A person goes on with a ledger that is older than it was: what a workflow sent from `since_at` to `until_at` is not in it.
insert into put_back (workflow_id, seq, accepted_at, since_at, until_at)
values (:workflow_id, :seq, :now, :since_at, :until_at);

-- name: put_back_all
-- When each workflow was put back last, and from when on it may lack what it sent.
select b.workflow_id, b.seq, b.accepted_at, b.until_at,
  (select min(o.since_at) from put_back o where o.workflow_id = b.workflow_id) as since_at from put_back b
where b.seq = (select max(o.seq) from put_back o where o.workflow_id = b.workflow_id);

-- name: put_back_passed
-- The first run of a producer or routine since its workflow was put back that brought nothing new, or that came so much
-- later: by then it had brought again what was lost. The very first counts only if it brought nothing.
select r.seq from run r
where r.workflow_id = :workflow_id and r.handler = :handler and r.status = 'committed' and r.seq > :seq
  and ((not exists (select 1 from event e where e.workflow_id = r.workflow_id and e.seq > r.seq and e.created_by = r.id)
        and not exists (select 1 from mutation m where +m.seq > :seq
          and (m.run_id = r.lineage or (m.lineage = r.lineage and m.run_id <> m.lineage))))
    or (r.created_at >= :later and exists (select 1 from run f where f.workflow_id = r.workflow_id
          and f.handler = r.handler and f.status = 'committed' and f.seq > :seq and f.seq < r.seq)))
order by r.seq limit 1;

-- name: put_back_work
-- Whether a run works on something from before a number of its workflow's sequence: events that it reserved, those that
-- they came from, or in a routine the run that began it.
with recursive earlier (event_id) as (
  select v.event_id from reservation v where v.workflow_id = :workflow_id and v.run_id = :run_id
  union
  select v.event_id from earlier x join event e on e.id = x.event_id
    join reservation v on v.workflow_id = :workflow_id and v.run_id = e.created_by)
select 1 from earlier x join event e on e.id = x.event_id where e.seq <= :number
union all
select 1 from run r where r.id = :lineage and r.kind = 'routine' and r.seq <= :number
limit 1;

-- name: put_back_known
-- Whether it is known since then that a thing was not sent: looked up, or said by a person.
select 1 as known from mutation where workflow_id = :workflow_id and mutation_key = :mutation_key and seq > :seq
  and status = 'failed' limit 1;

-- name: host_end
-- A host let go of everything in order: what it left active was not interrupted.
update host set ended_at = :now where epoch = :epoch;

-- name: host_newest
-- The host that opened this ledger last.
select * from host order by epoch desc limit 1;

-- name: host_get
-- One host.
select * from host where epoch = :epoch;

-- name: host_over
-- Whether an earlier host is known to be dead, or has ended.
select epoch from host where epoch = :epoch;

-- name: workflow_here
-- Whether a host runs a workflow.
select id as workflow_id from workflow where id = :workflow_id and :epoch > 0;

-- name: handler_reschedule
-- The wall clock was set back: no due time may lie further ahead than its own interval.
update handler_state set next_run_at = :next_run_at, wake_at = :wake_at, recheck_at = :recheck_at, updated_at = :now
where workflow_id = :workflow_id and handler = :handler;

-- name: moved_mark
-- Where the ledger went, or came from, if it is not simply here.
select mover, went, place, at from moved;

-- name: moved_insert
-- The ledger goes to another place, or comes from one.
insert into moved (mover, went, place, at) values (:mover, :went, :place, :at);

-- name: moved_forget
-- The ledger is here, and nowhere else.
delete from moved where mover = :mover;
