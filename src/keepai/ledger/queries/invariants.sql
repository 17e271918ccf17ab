-- What must never be found in a ledger. None of these changes anything; each is one rule of ledger/invariants.py.
-- Ids are unique, but indexes begin with the workflow: a rule that names it stays linear in the size of the file.

-- name: never_event_unaccounted
-- An event that ended without exactly one committed run that took it, or a person who skipped it.
select e.id, e.status from event e left join (
  select v.event_id, v.attempt, count(*) as taken from reservation v join run r on r.id = v.run_id
  where r.status = 'committed' group by v.event_id, v.attempt
) t on t.event_id = e.id and t.attempt = e.attempt
where e.status <> 'pending' and coalesce(t.taken, 0) <> 1
and not (e.status = 'skipped' and exists (
  select 1 from action a where a.workflow_id = e.workflow_id
    and (a.act = 'skip_input' or (a.act = 'skip_event' and a.subject_id = e.id))));

-- name: never_event_taken_twice
-- An attempt at an event that two runs committed.
select v.event_id, v.attempt, count(*) from reservation v join run r on r.id = v.run_id
where r.status = 'committed' group by 1, 2 having count(*) > 1;

-- name: never_event_held_by_none
-- An event reserved by a run that is not open, or that has no reservation of it.
select e.id, e.reserved_by from event e left join run r on r.id = e.reserved_by
where e.reserved_by is not null and (r.status not in ('active', 'paused', 'failed') or not exists (
  select 1 from reservation v
  where v.workflow_id = e.workflow_id and v.run_id = e.reserved_by and v.event_id = e.id and v.attempt = e.attempt));

-- name: never_reservation_not_held
-- An open run whose reservation is not held.
select v.run_id, v.event_id from reservation v join run r on r.id = v.run_id join event e on e.id = v.event_id
where (r.status = 'active' or r.status = 'paused' or r.status = 'failed') and e.reserved_by is distinct from r.id;

-- name: never_event_of_no_commit
-- An event or input of a run that did not commit; those that a person sent in are of an input with the source manual.
select x.id, r.status from (select id, created_by from event union all select id, created_by from input) x
left join run r on r.id = x.created_by where r.status is distinct from 'committed' and r.kind is distinct from 'routine'
  and not exists (select 1 from input i where i.id = x.created_by and i.source = 'manual');

-- name: never_item_without_input
-- An item whose input was not made with it.
select t.id from item t left join input i on i.id = t.input_id and i.source = 'workflow' and i.type = 'item'
where i.external_id is distinct from t.external_id;

-- name: never_mutation_outside_item
-- A mutation of a routine outside of the items that its run worked on.
select m.id from mutation m join run r on r.id = m.run_id and r.kind = 'routine'
where not exists (
  select 1 from item_run x where x.workflow_id = m.workflow_id and x.run_id = r.id and x.item_id = m.item_id);

-- name: never_item_in_no_hand
-- An item in hand of a lineage that has ended.
select t.id, t.status from item t where t.status in ('processing', 'needs_attention')
and exists (select 1 from item_run x indexed by item_run_by_item
  where x.workflow_id = t.workflow_id and x.item_id = t.id and x.attempt = t.attempt)
and not exists (select 1 from item_run x cross join run r cross join run o
  where x.workflow_id = t.workflow_id and x.item_id = t.id and r.id = x.run_id
    and o.workflow_id = r.workflow_id and o.lineage = r.lineage
    and (o.status = 'active' or o.status = 'paused' or o.status = 'failed'));

-- name: never_applied_twice
-- A thing applied twice in one attempt.
select mutation_key from mutation where status = 'applied' group by workflow_id, 1 having count(*) > 1;

-- name: never_sent_on_a_guess
-- A thing sent again before the last send was known to have failed.
select m.id, later.id from mutation m cross join mutation later
where m.status <> 'failed' and later.workflow_id = m.workflow_id and later.mutation_key = m.mutation_key
  and +later.seq > m.seq;  -- found by its key: a workflow may have made very many since

-- name: never_event_without_cause
-- A producer's event without a cause.
select e.id from event e join run r on r.id = e.created_by
where r.kind = 'producer' and not exists (
  select 1 from event_cause c where c.workflow_id = e.workflow_id and c.event_id = e.id);

-- name: never_cause_missing
-- A consumer's event that lacks a cause of what its run reserved.
select e.id, c.input_id from event e cross join run r cross join reservation_cause c
where r.id = e.created_by and r.kind = 'consumer' and c.workflow_id = r.workflow_id and c.run_id = r.id
except select event_id, input_id from event_cause;

-- name: never_cause_made_up
-- A consumer's event with a cause, from its beginning, of which its run reserved nothing.
select c.event_id, c.input_id from event_cause c cross join event e cross join run r
where e.id = c.event_id and r.id = e.created_by and r.kind = 'consumer' and c.attempt = 1 and c.revision = 1
except select e.id, c.input_id from event e cross join run r cross join reservation_cause c
where r.id = e.created_by and r.kind = 'consumer' and c.workflow_id = r.workflow_id and c.run_id = r.id;

-- name: never_cause_ahead
-- A cause of an event with a payload that the event does not have.
select c.event_id, c.input_id from event_cause c join event e on e.id = c.event_id where c.revision > e.revision;

-- name: never_cause_came_later
-- An input behind what a run reserved that came in after the run had begun.
select c.run_id, c.input_id from reservation_cause c join run r on r.id = c.run_id join input i on i.id = c.input_id
where i.seq > r.seq;

-- name: never_run_not_pinned
-- A run past prepare without its PrepareResult.
select id, phase from run
where phase in ('prepared', 'mutating', 'mutated', 'emitting') and prepare_result is null;

-- name: never_reserved_too_early
-- A run that reserved before it was prepared.
select r.id from run r join reservation v on v.run_id = r.id where r.phase = 'preparing';

-- name: never_outcome_missing
-- A run after its mutation without its outcome.
select id, phase from run where phase in ('mutated', 'emitting') and outcome is null;

-- name: never_committed_unresolved
-- A committed run with a mutation that is neither applied nor skipped.
select r.id, m.status from run r join mutation m on m.run_id = r.id
where r.status = 'committed' and m.status not in ('applied', 'skipped')
  and not (m.status = 'failed' and r.outcome is not null and json_extract(r.outcome, '$.status') = 'skipped');

-- name: never_applied_behind
-- A run that is still to send what was applied already.
select r.id, r.phase, m.id from run r join mutation m on m.run_id = r.id and m.status = 'applied'
where r.kind = 'consumer' and (r.status = 'active' or r.status = 'paused' or r.status = 'failed')
  and r.phase in ('prepared', 'mutating');

-- name: never_applied_and_skipped
-- A run that ended as skipped though its mutation happened.
select r.id from run r join mutation m on m.run_id = r.id and m.status = 'applied'
where r.kind = 'consumer' and r.status = 'committed' and json_extract(r.outcome, '$.status') = 'skipped';

-- name: never_sent_once_more
-- An applied mutation whose lineage was sent once more.
select m.id, later.id from mutation m join mutation later
  on (later.run_id = m.lineage or (later.lineage = m.lineage and later.run_id <> later.lineage)) and +later.seq > m.seq
where m.status <> 'failed' and m.item_id is null;

-- name: never_doubt_of_no_run
-- A mutation in flight or in doubt whose run is not open.
select m.id, r.status from mutation m join run r on r.id = m.run_id
where (m.status = 'in_flight' or m.status = 'needs_reconcile' or m.status = 'indeterminate')
  and r.status not in ('active', 'paused', 'failed');

-- name: never_carried_on_twice
-- A run that others carry on from twice.
select retry_of from run where retry_of is not null group by 1 having count(*) > 1;

-- name: never_run_left
-- A run that was left and that nobody carries on.
select id, status from run r where status in ('crashed', 'superseded')
and not exists (select 1 from run n
  where n.workflow_id = r.workflow_id and n.lineage = r.lineage and n.retry_of = r.id and n.attempt = r.attempt + 1);

-- name: never_lineage_committed_twice
-- Two committed runs of one lineage.
select lineage from run where status = 'committed' group by 1 having count(*) > 1;

-- name: never_reservation_changed
-- A reservation that changed on its way to the run that carries on.
select n.id, v.event_id from run n join run r on r.id = n.retry_of join reservation v on v.workflow_id = n.workflow_id and v.run_id = n.id
where n.phase <> 'preparing' and (n.major, n.minor) = (r.major, r.minor)
and exists (select 1 from reservation o where o.workflow_id = r.workflow_id and o.run_id = r.id) and not exists (
  select 1 from reservation o where o.workflow_id = r.workflow_id and o.run_id = r.id and o.event_id = v.event_id
  and o.payload is not distinct from v.payload and o.attempt = v.attempt and o.position = v.position);

-- name: never_answer_without_act
-- A person's word about a mutation without the act that it came by.
select m.id from mutation m where m.resolution is not null and not exists (
  select 1 from action a where a.subject_id in (m.id, m.run_id) or (a.act = 'reject' and a.workflow_id = m.workflow_id));

-- name: never_approval_used_twice
-- An approval that was used and whose call is not on record.
select a.id from approval a where a.status = 'consumed' and not exists (
  select 1 from mutation m where m.workflow_id = a.workflow_id and m.run_id = a.run_id
    and m.params = json_extract(a.intent, '$.params')
    and lower(hex(m.mutation_key)) = json_extract(a.intent, '$.mutation_key'));

-- name: never_done_in_doubt
-- An item that ended while a mutation of it was not known to have happened or not.
select t.id, m.id from item t join mutation m on m.item_id = t.id
where t.status in ('done', 'skipped') and m.status in ('in_flight', 'needs_reconcile', 'indeterminate');

-- name: never_pruned_unfinished
-- An event that waits and whose payload was pruned.
select id from event where status = 'pending' and payload = '';

-- name: never_parked_unknown
-- A run that is parked and of which nothing says what it holds, or the other way round; or a workflow that counts others.
select r.id, p.run_id from run r left join parked p on p.workflow_id = r.workflow_id and p.run_id = r.id
where r.parked <> 0 and p.run_id is null
union all select p.run_id, r.id from parked p left join run r on r.id = p.run_id and r.parked <> 0 where r.id is null
union all select c.workflow_id, sum(c.number) from (
  select id as workflow_id, parked as number from workflow union all select workflow_id, -1 from parked) c
group by c.workflow_id having sum(c.number) <> 0;

-- name: never_parked_item_taken
-- An item that a parked run carries on, and that another open run has begun since.
select r.item_id, o.id from parked p cross join run r cross join item_run own cross join run o cross join item_run x
where r.id = p.run_id and r.item_id is not null
  and own.workflow_id = p.workflow_id and own.run_id = r.lineage and own.item_id = r.item_id
  and o.workflow_id = p.workflow_id and (o.status = 'active' or o.status = 'paused' or o.status = 'failed')
  and o.lineage <> r.lineage and x.workflow_id = o.workflow_id and x.run_id = o.id and x.item_id = r.item_id
  and x.attempt = own.attempt and x.seq > own.seq;

-- name: never_parked_cause_free
-- A free event that shares an input with what a parked run has reserved.
select e.id, v.run_id from parked_cause v cross join event_cause c cross join event e
where c.workflow_id = v.workflow_id and c.input_id = v.input_id and e.id = c.event_id and e.attempt = c.attempt
  and e.status = 'pending' and e.reserved_by is null and e.held_by is null;

-- name: never_event_held_for_none
-- An event that waits for a run that is not parked, or that shares no input with what that has reserved.
select e.id, e.held_by from event e where e.held_by is not null and not exists (
  select 1 from parked_cause v cross join event_cause c
  where v.workflow_id = e.workflow_id and v.run_id = e.held_by
    and c.event_id = e.id and c.workflow_id = e.workflow_id and c.attempt = e.attempt and c.input_id = v.input_id)
and not exists (select 1 from parked_reservation v
  where v.workflow_id = e.workflow_id and v.run_id = e.held_by and v.event_id = e.id);

-- name: never_open_run_of_no_host
-- An active run of a host that the ledger does not know.
select r.id, r.host from run r where r.status = 'active'
and not exists (select 1 from host h where h.id = r.host and h.epoch = r.epoch);

-- name: never_two_hosts_at_once
-- A run of a host that began after the last that was told of a run of a later host. (A run that was parked may go on under
-- a later host after runs that began after it.)
select t.id, t.host from (
  select id, host, epoch, begins, max(case when begins = 0 then epoch end) over (
    partition by workflow_id order by entry) as newest from (
    select r.workflow_id, r.id, r.host, r.epoch, 1 as begins,
      (select min(s.entry) from account_subject s where s.subject_id = r.id) as entry from run r
    union all select r.workflow_id, r.id, r.host, r.epoch, 0,
      (select max(s.entry) from account_subject s where s.subject_id = r.id) from run r) e) t
where t.begins = 1 and t.epoch < t.newest;

-- name: history_ends
-- The present state of everything that has one.
select 'phase' as machine, id as subject, phase as state from run
union all select 'status' as machine, id as subject, status as state from run
union all select 'mutation' as machine, id as subject, status as state from mutation
union all select 'event' as machine, id as subject, status as state from event
union all select 'input' as machine, id as subject, status as state from input
union all select 'item' as machine, id as subject, status as state from item
union all select 'repair' as machine, id as subject, status as state from repair
union all select 'proposal' as machine, id as subject, status as state from proposal
union all select 'approval' as machine, id as subject, status as state from approval
union all select 'workflow' as machine, id as subject, status as state from workflow;
