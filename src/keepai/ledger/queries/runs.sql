-- Statements on runs and mutations. Every move names the state it expects. What is open is found by a small index if
-- the states stand here as they do there: each compared, in that order. The runs of a lineage, and what they sent, are
-- found by the id of the first of them and, for the others, by a small index: as its condition stands there. With a
-- plus before a column no index is chosen for it.

-- name: run_insert
-- A new attempt at a handler.
insert into run (workflow_id, seq, id, handler, kind, major, minor, trigger, retry_of, lineage, attempt, phase, status,
  prepare_result, prepared_at, outcome, failures, observed, host, epoch, created_at, updated_at, due_at, bytes, parked,
  item_id)
values (:workflow_id, :seq, :id, :handler, :kind, :major, :minor, :trigger, :retry_of, :lineage, :attempt, :phase,
  'active', :prepare_result, :prepared_at, :outcome, :failures, :observed, :host, :epoch, :created_at, :updated_at,
  :due_at, :bytes, :parked, :item_id);

-- name: run_by_id
-- One run.
select * from run where id = :run_id;

-- name: run_times
-- The cron times after a moment for which a handler has run, oldest first.
select due_at from run where workflow_id = :workflow_id and handler = :handler and due_at > :after
order by due_at limit :limit;

-- name: run_time_newest
-- The newest cron time for which a handler has run.
select due_at from run where workflow_id = :workflow_id and handler = :handler and due_at > :after
order by due_at desc limit 1;

-- name: run_open
-- The one run that holds a workflow, if any; runs that are parked do not.
select * from run where workflow_id = :workflow_id and parked = 0
  and (status = 'active' or status = 'paused' or status = 'failed');

-- name: run_open_all
-- Every run that holds its workflow, or is parked in it.
select * from run where (status = 'active' or status = 'paused' or status = 'failed') order by updated_at, id;

-- name: run_active_all
-- Runs that some host was executing; one that is parked only waits for its turn.
select * from run where status = 'active' and parked = 0 order by workflow_id;

-- name: run_crashes
-- How often the hosts of this lineage died under it; of a routine, since it last brought something about.
select count(*) as crashes from run where +workflow_id = :workflow_id
  and (id = :lineage or (lineage = :lineage and retry_of is not null)) and status = 'crashed'
  and seq > coalesce((select max(r.seq) from mutation m join run r on r.id = m.run_id and r.kind = 'routine'
    where (m.run_id = :lineage or (m.lineage = :lineage and m.run_id <> m.lineage)) and m.status = 'applied'), 0);

-- name: run_prepared
-- prepare returned: what it decided is pinned, and the run goes on to what follows from it.
update run set phase = :target, prepare_result = :prepare_result, prepared_at = :prepared_at,
  outcome = coalesce(:outcome, outcome), bytes = :bytes, updated_at = :now
where id = :run_id and phase = 'preparing' and status = 'active' and epoch = :epoch;

-- name: run_phase
-- Go forward from one phase to the next.
update run set phase = :target, outcome = coalesce(:outcome, outcome), bytes = :bytes, updated_at = :now
where id = :run_id and phase = :source and status = 'active' and epoch = :epoch;

-- name: run_stop
-- A failure changes the status, never the phase.
update run set status = :status, reason = :reason, error = :error, retry_at = :retry_at, failures = :failures, exhausted = :exhausted,
  bytes = :bytes, updated_at = :now
where id = :run_id and status = 'active' and phase = :phase and epoch = :epoch;

-- name: run_leave
-- Another run carries on, or nobody does.
update run set status = :target, reason = null, retry_at = null, parked = 0, updated_at = :now
where id = :run_id and status = :source and parked = :parked;

-- name: run_resume
-- What a run waited for is there: this host goes on with it.
update run set status = 'active', reason = null, error = null, retry_at = null, phase = :phase,
  outcome = coalesce(:outcome, outcome), host = :host, epoch = :epoch, updated_at = :now
where id = :run_id and status = :source and phase = :source_phase and parked = :parked;

-- name: run_progress
-- Something came of an item: earlier failures of its run no longer count, unless another item of the lineage has failed.
update run set failures = 0 where id = :run_id and failures > 0 and not exists (
  select 1 from run r cross join item_run x cross join item i
  where (r.id = run.lineage or (r.lineage = run.lineage and r.retry_of is not null)) and x.workflow_id = r.workflow_id and x.run_id = r.id
    and i.id = x.item_id and i.attempt = x.attempt and i.status = 'failed' and i.id <> :item_id);

-- name: run_adopt
-- A dead host's run now belongs to this one.
update run set host = :host, epoch = :epoch, updated_at = :now
where id = :run_id and status = 'active' and epoch = :source_epoch;

-- name: run_commit
-- Everything of this run is in the ledger.
update run set phase = 'committed', status = 'committed', bytes = :bytes, parked = 0, updated_at = :now
where id = :run_id and phase = :source and status = 'active' and epoch = :epoch;

-- name: trace_insert
-- One thing that a run did.
insert into trace (workflow_id, run_id, position, step, kind, name, args, answer, error, duration_ms, at)
values (:workflow_id, :run_id, :position, :step, :kind, :name, :args, :answer, :error, :duration_ms, :at);

-- name: trace_last
-- Where a run's trace ends so far.
select position from trace where workflow_id = :workflow_id and run_id = :run_id order by position desc limit 1;

-- name: mutation_insert
-- The intent, written before the first byte leaves.
insert into mutation (workflow_id, seq, id, run_id, ordinal, lineage, mutation_key, idempotency_key, connector,
  operation, account, target, identity, payload, params, subkey, title, preview, status, attempts, sender, epoch,
  first_sent_at, deadline_at, item_id, created_at, updated_at)
values (:workflow_id, :seq, :id, :run_id, :ordinal, :lineage, :mutation_key, :idempotency_key, :connector,
  :operation, :account, :target, :identity, :payload, :params, :subkey, :title, :preview, 'in_flight', :attempts, :sender, :epoch,
  :now, :deadline_at, :item_id, :now, :now);

-- name: mutation_count
-- How often the same thing was sent before (a consumer's run wants one thing), how much its run has sent, and the last
-- number that its workflow has counted; null if runs of it are parked.
select (select count(*) from mutation where workflow_id = :workflow_id and mutation_key = :mutation_key)
  + (select count(*) from mutation where run_id = :lineage and mutation_key <> :mutation_key and :item_id is null)
  + (select count(*) from mutation where lineage = :lineage and run_id <> lineage and mutation_key <> :mutation_key
    and :item_id is null) as attempts,
  (select count(*) from mutation where workflow_id = :workflow_id and run_id = :run_id) as ordinal,
  (select sequence from workflow where id = :workflow_id and parked = 0) as sequence;

-- name: mutation_keep
-- A person keeps what was applied instead of this other payload.
update mutation set kept = :kept where id = :mutation_id and status = 'applied';

-- name: mutation_same
-- What became of the same thing for the same inputs and attempt before.
select id, status, payload, kept, preview, params, result, resolution, doubted_at from mutation
where workflow_id = :workflow_id and mutation_key = :mutation_key;

-- name: mutation_sent_since
-- How often an operation was sent since a moment, whatever became of it.
select count(*) as sent from mutation
where workflow_id = :workflow_id and connector = :connector and operation = :operation and first_sent_at > :since;

-- name: mutation_made_in_lineage
-- How often an operation was sent by a lineage and not refused. A run that goes on without a parked item counts on from
-- where that one stopped.
select count(*) as made from run own cross join run r cross join mutation m
where own.id = :lineage and r.workflow_id = :workflow_id and r.handler = own.handler and r.retry_of is null
  and r.seq <= own.seq and r.seq >= (
    select f.seq from run f where f.workflow_id = :workflow_id and f.handler = own.handler and f.retry_of is null
      and f.trigger <> 'rest' and f.seq <= own.seq order by f.seq desc limit 1)
  and +m.workflow_id = :workflow_id and (m.run_id = r.id or (m.lineage = r.id and m.run_id <> m.lineage))
  and m.connector = :connector and m.operation = :operation and m.status <> 'failed';

-- name: mutation_of_run
-- The newest mutation of a run.
select * from mutation where workflow_id = :workflow_id and run_id = :run_id order by ordinal desc limit 1;

-- name: mutation_under_way
-- A mutation of a run whose call is on record and whose outcome is not.
select * from mutation where workflow_id = :workflow_id and run_id = :run_id and status = 'in_flight' limit 1;

-- name: mutation_by_id
-- One mutation.
select * from mutation where id = :mutation_id;

-- name: mutation_of_lineage
-- The newest mutation of a lineage: of each of its runs the last one, however many a routine has sent.
select m.* from run r cross join mutation m
where (r.id = :lineage or (r.lineage = :lineage and r.retry_of is not null))
  and m.run_id = r.id and m.workflow_id = :workflow_id and m.ordinal = (
    select max(x.ordinal) from mutation x where x.run_id = r.id and x.workflow_id = :workflow_id)
order by +m.seq desc limit 1;

-- name: mutation_move
-- What became known of a mutation.
update mutation set status = :target, result = coalesce(:result, result), error = coalesce(:error, error),
  closed_at = coalesce(closed_at, :closed_at), doubted_at = coalesce(:doubted_at, doubted_at),
  reconcile_attempts = coalesce(:reconcile_attempts, reconcile_attempts),
  resolution = coalesce(:resolution, resolution), updated_at = :now
where id = :mutation_id and status = :source;

-- name: mutation_close
-- The call has ended: nothing more of it can leave this host.
update mutation set closed_at = :now where id = :mutation_id and closed_at is null;

-- name: mutation_in_question
-- What only a person can tell about so far.
select * from mutation where status = 'indeterminate' order by workflow_id;

-- name: mutation_closed_in_doubt
-- Calls that have ended with an unknown outcome.
select id, workflow_id from mutation
where closed_at is not null and (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate');

-- name: mutation_unclosed
-- A call of a dead host that is not known to have ended.
select id from mutation
where closed_at is null and epoch < :epoch
  and (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate') limit 1;

-- name: mutation_close_dead
-- The calls of dead hosts have ended with them.
update mutation set closed_at = :now
where closed_at is null and epoch < :epoch
  and (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate');

-- name: mutation_evidence
-- A sign that came out of turn: kept beside earlier ones; one that contradicts the outcome must be seen by a person.
update mutation set evidence = coalesce(evidence || ' ', '') || :evidence,
  contradicted_at = case when :contradicts = 1 then :now else contradicted_at end, updated_at = :now
where id = :mutation_id;

-- name: mutation_seen
-- A person has seen what contradicts the outcome; the evidence stays.
update mutation set contradicted_at = null
where id = :mutation_id and contradicted_at = :contradicted_at;

-- name: run_restop
-- What a stopped run waits for has changed.
update run set reason = :reason, status = :status, error = :error, retry_at = :retry_at, failures = :failures,
  exhausted = :exhausted, updated_at = :now
where id = :run_id and status = 'paused' and reason = 'reconciliation';
