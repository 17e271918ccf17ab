-- How a piece of work flows through these tables:
--
--   A workflow has script versions; the active one says which topics and handlers exist.
--   A producer's run registers inputs (what came in, in a person's words) and publishes events;
--   event_cause ties each event, in each of its attempts, to the inputs behind it, for ever. What is published over an
--   event that a run has taken, or that has ended, is an event_revision; held_cause names the inputs behind that.
--   A consumer's run reserves events (reservation keeps them as they were then), makes at most one
--   mutation, publishes further events and commits: its events are consumed, its state is kept.
--   A routine's run works through items (item_run says which, and in which attempt); an item is an input
--   too, and may make several mutations, each found again by its key when the routine is replayed.
--   A call that a person must allow is held in approval, whole, until it is sent or given up.
--   A run that failed because the script is wrong may be mended: repair keeps each try.
--   A script that a model or another program wrote waits in proposal until a person accepts or declines it.
--   A run that stops and goes on becomes a new run with retry_of; the lineage is their first.
--   A question that was put to a person is in notice, once for each channel by which it was told; channel
--   says how each of these does. Both are about telling only: nothing that runs depends on them.
--   Every act of a person is in action. Every commit that moves a state, decides something or keeps an act appends one
--   entry to account that tells all of it (ledger/account.py), with a hash over the entry and the one before;
--   account_subject finds the entries that tell of one thing.
--
-- Every table but host, certificate, principal, proposal, channel and notice has workflow_id in its key: first where order is by the sequence numbers that each
-- workflow counts itself, never by time; after the id of a run, an event or an input where that finds a row, because ids
-- sort by time: what many workflows write at one moment lies on the same few pages. Ids are numbers here, and the keys of
-- mutations bytes; ledger/stored_ids.py gives and takes them as everybody else sees them. Times are milliseconds since
-- 1970 UTC. The checks on states are derived from
-- model/states.py and compared with it by a test; the triggers are derived when the file is opened. In tables that
-- every run writes they compare: for a list of more than two SQLite would fill a table of its own at every check.

-- A ledger that is older than it was may have sent things that it does not know of: put_back says, for each workflow, that a
-- person went on with it all the same.

create table host (
  epoch integer not null primary key,
  id integer not null unique,
  machine text not null,
  pid integer not null,
  started_at integer not null,
  ended_at integer
);

-- Where the ledger is, if not here and nowhere else (ledger/moving.py): it went to another place, or it came from one and
-- that one has not said yet that it went. Then there is one row, and no host begins. `mover` is the same in both places.
create table moved (
  one integer not null primary key default 1 constraint moved_is_one_row check (one = 1),
  mover text not null,
  went integer not null, -- 1: to that place; 0: it came from there
  place text not null,
  at integer not null
);

-- How much lies here for a workflow is counted in its row with every commit (ledger/transitions/kept_bytes.py): of its events,
-- of its runs that have ended, of its inputs and items. What its open run has kept so far is in that run's row.
create table workflow (
  id integer not null primary key,
  name text not null unique,
  status text not null constraint workflow_status_known check (status in ('active', 'paused', 'stopped')),
  major integer not null,
  minor integer not null,
  sequence integer not null default 0,
  event_bytes integer not null default 0,
  run_bytes integer not null default 0,
  input_bytes integer not null default 0,
  created_at integer not null,
  updated_at integer not null,
  waiting text not null default 'stop' constraint workflow_waiting_known check (
    waiting in ('stop', 'intake', 'others')),
  waiting_configured integer not null default 1, -- keep.toml says so, or nobody; 0: a person said so
  parked integer not null default 0 -- how many of its runs are parked
);

create table put_back (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  accepted_at integer not null,
  since_at integer not null,
  until_at integer not null,
  primary key (workflow_id, seq)
) without rowid;

create table script (
  workflow_id integer not null references workflow (id),
  major integer not null,
  minor integer not null,
  source text not null,
  hash text not null,
  manifest text not null,
  author text not null constraint script_author_known check (author in ('person', 'planner', 'maintainer')),
  impact text not null constraint script_impact_known check (impact in ('safe', 'potentially_impactful')),
  created_at integer not null,
  activated_at integer not null,
  primary key (workflow_id, major, minor)
);

-- That Keep itself tried a script and found no fault, by the hash of its text: the last such time. What it was tried
-- with is in `facts`; engine/certificate.py says when that no longer holds.
create table certificate (
  script_hash text not null primary key,
  facts text not null,
  made_by text not null,
  made_at integer not null
) without rowid;

-- Who may come in by a proof of their own: agents and users, by a token. `secret` is a hash of that proof (engine/tokens_and_pins.py). The
-- person without a name is whoever types at the terminal of the host's own account; their proof is the PIN. A row whose
-- principal was removed stays, without its hash.
create table principal (
  kind text not null constraint principal_kind_known check (kind in ('person', 'agent')),
  name text not null,
  role text not null constraint principal_role_known check (
    kind = 'person' and role in ('viewer', 'operator', 'owner') or kind = 'agent' and role in ('look', 'propose')
  ),
  secret text unique,
  added_by text not null,
  added_at integer not null,
  removed_by text,
  removed_at integer,
  primary key (kind, name)
) without rowid;

create table topic (
  workflow_id integer not null references workflow (id),
  name text not null,
  subscriber text,
  touched integer not null default 0,
  primary key (workflow_id, name)
) without rowid;

create table handler_state (
  workflow_id integer not null references workflow (id),
  handler text not null,
  kind text not null,
  present integer not null,
  state text,
  wake_at integer,
  recheck_at integer,
  next_run_at integer,
  queued integer not null default 0, -- why it is due at once: see QUEUED in engine/scheduler.py
  observed integer,
  progressed integer not null default 0,
  ran_at integer,
  gap_since_at integer,
  gap_until_at integer,
  updated_at integer not null,
  primary key (workflow_id, handler)
) without rowid;

create table grant_rule (
  workflow_id integer not null references workflow (id),
  capability text not null,
  mode text not null constraint grant_mode_known check (mode in ('allow', 'ask', 'deny')),
  rule text not null,
  account text not null, -- of the connector when it was granted; empty if it has none
  configured integer not null, -- keep.toml says so; 0: a person said so
  seq integer not null,
  updated_at integer not null,
  primary key (workflow_id, capability)
) without rowid;

create table input (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  id integer not null primary key,
  source text not null,
  type text not null,
  external_id text not null,
  title text not null,
  status text not null constraint input_status_known check (status in ('active', 'skipped')),
  created_by integer not null,
  created_at integer not null,
  updated_at integer not null,
  unique (workflow_id, seq),
  unique (workflow_id, source, type, external_id)
);

create index input_skipped on input (workflow_id, source, type) where status = 'skipped';

create table event (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  id integer not null primary key,
  topic text not null,
  message_id text not null,
  payload text not null,
  revision integer not null default 1,
  newest integer not null default 1,
  status text not null constraint event_status_known check (
    status = 'pending' or status = 'consumed' or status = 'skipped'),
  reserved_by integer references run (id),
  created_by integer not null,
  depth integer not null default 0,
  attempt integer not null default 1,
  created_at integer not null,
  updated_at integer not null,
  held_by integer, -- a parked run: the event shares an input with what that has reserved
  unique (workflow_id, seq),
  unique (workflow_id, topic, message_id),
  constraint event_reserved_only_while_pending check (reserved_by is null or status = 'pending'),
  constraint event_held_only_while_free check (held_by is null or (status = 'pending' and reserved_by is null))
);

create index event_pending on event (workflow_id, topic, seq) where status = 'pending';
create index event_reserved on event (reserved_by) where reserved_by is not null;
create index event_held on event (workflow_id) where held_by is not null;

-- `revision` is the first one of the event with which the input came: a run that reserved an earlier one owes it nothing.
create table event_cause (
  workflow_id integer not null,
  event_id integer not null references event (id),
  attempt integer not null,
  input_id integer not null references input (id),
  revision integer not null,
  primary key (event_id, workflow_id, attempt, input_id)
) without rowid;

create index event_cause_by_input on event_cause (input_id, workflow_id, event_id);

create table event_revision (
  workflow_id integer not null,
  event_id integer not null references event (id),
  revision integer not null,
  payload text not null,
  created_by integer not null,
  created_at integer not null,
  primary key (workflow_id, event_id, revision)
) without rowid;

-- `attempt` is that of the event if a run had reserved it when the revision came, and 0 if it had ended.
create table held_cause (
  workflow_id integer not null,
  event_id integer not null references event (id),
  revision integer not null,
  input_id integer not null references input (id),
  attempt integer not null,
  primary key (event_id, workflow_id, revision, input_id)
) without rowid;

create index held_cause_by_input on held_cause (workflow_id, input_id, event_id);

create table run (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  id integer not null primary key,
  handler text not null,
  kind text not null,
  major integer not null,
  minor integer not null,
  trigger text not null,
  retry_of integer references run (id),
  lineage integer not null,
  attempt integer not null,
  phase text not null constraint run_phase_known check (
    phase = 'preparing' or phase = 'prepared' or phase = 'mutating' or phase = 'mutated' or phase = 'emitting'
    or phase = 'executing' or phase = 'committed'),
  status text not null constraint run_status_known check (
    status = 'active' or status = 'paused' or status = 'failed' or status = 'committed' or status = 'crashed'
    or status = 'superseded' or status = 'abandoned'),
  reason text constraint run_reason_known check (
    reason = 'transient' or reason = 'approval' or reason = 'reconciliation' or reason = 'limit' or reason = 'held'
    or reason = 'logic' or reason = 'internal'),
  prepare_result text,
  prepared_at integer,
  outcome text,
  error text,
  retry_at integer,
  failures integer not null default 0,
  exhausted integer not null default 0,
  observed integer not null,
  host integer not null,
  epoch integer not null,
  created_at integer not null,
  updated_at integer not null,
  due_at integer,
  bytes integer not null default 0,
  parked integer not null default 0, -- its own seq while it is
  item_id integer, -- of a routine: the one item that it carries on; others go on with the rest
  unique (workflow_id, seq),
  constraint run_parked_while_open check (
    parked = 0 or status = 'active' or status = 'paused' or status = 'failed'),
  constraint run_reason_fits check (
    case status
      when 'paused' then reason is not null and (
        reason = 'transient' or reason = 'approval' or reason = 'reconciliation' or reason = 'limit' or reason = 'held')
      when 'failed' then reason is not null and reason in ('logic', 'internal')
      else reason is null
    end),
  constraint run_commits_whole check ((status = 'committed') = (phase = 'committed'))
);

create unique index run_once_per_time on run (workflow_id, handler, due_at) where due_at is not null;
-- One run of a workflow is open, and further ones that are parked; the same of mutations without a known outcome.
create unique index run_one_open on run (workflow_id, parked)
  where status = 'active' or status = 'paused' or status = 'failed';
-- The first run of a lineage is found by its id, and what it sent by that: most runs are the only ones of theirs.
create index run_by_lineage on run (lineage) where retry_of is not null;
create index run_by_item on run (item_id) where item_id is not null;

-- A run that waits while others of its workflow go on, and what it keeps them from: events are in event.held_by.
create table parked (
  workflow_id integer not null references workflow (id),
  run_id integer not null references run (id),
  turn integer not null, -- the number of its lineage's first run: among runs with one target, the lower goes first
  handler text, -- that may not begin meanwhile
  writes text not null constraint parked_writes_known check (writes in ('nothing', 'target', 'connector', 'anything')),
  connector text not null,
  account text not null,
  target text not null,
  parked_at integer not null,
  primary key (run_id, workflow_id)
) without rowid;

create index parked_of_workflow on parked (workflow_id, turn);

create table reservation (
  workflow_id integer not null,
  run_id integer not null references run (id),
  position integer not null,
  event_id integer not null references event (id),
  topic text not null,
  message_id text not null,
  attempt integer not null,
  revision integer not null,
  payload text,  -- null: as the event has it; kept here before the event gets another
  primary key (run_id, workflow_id, event_id)
) without rowid;

create index reservation_by_event on reservation (event_id, workflow_id);

create table item (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  id integer not null primary key,
  external_id text not null,
  title text not null,
  status text not null constraint item_status_known check (
    status = 'processing' or status = 'done' or status = 'failed' or status = 'needs_attention'
    or status = 'skipped'),
  attempt integer not null default 1,
  begun integer not null,
  input_id integer not null references input (id),
  handler text not null,
  created_at integer not null,
  updated_at integer not null,
  unique (workflow_id, seq),
  unique (workflow_id, external_id)
);

create index item_by_input on item (input_id);
create index item_unfinished on item (workflow_id) where status in ('processing', 'failed', 'needs_attention');

create table item_run (
  workflow_id integer not null,
  run_id integer not null references run (id),
  item_id integer not null references item (id),
  seq integer not null,
  attempt integer not null,
  primary key (workflow_id, run_id, item_id)
) without rowid;

create index item_run_by_item on item_run (workflow_id, item_id);

create table mutation (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  id integer not null primary key,
  run_id integer not null references run (id),
  ordinal integer not null,
  lineage integer not null,
  mutation_key blob not null,
  idempotency_key text not null,
  connector text not null,
  operation text not null,
  account text not null,
  target text not null,
  identity text not null,
  payload text not null,
  params text not null,
  subkey text,
  title text,
  preview text not null,
  status text not null constraint mutation_status_known check (
    status = 'in_flight' or status = 'applied' or status = 'failed' or status = 'needs_reconcile'
    or status = 'indeterminate' or status = 'skipped'),
  result text,
  attempts integer not null,
  sender integer not null,
  epoch integer not null,
  first_sent_at integer not null,
  deadline_at integer not null,
  closed_at integer,
  doubted_at integer,
  reconcile_attempts integer not null default 0,
  error text,
  evidence text,
  resolution text,
  created_at integer not null,
  updated_at integer not null,
  item_id integer references item (id),
  kept text,
  contradicted_at integer,
  parked integer not null default 0, -- its own seq while its run is, and its outcome is unknown
  unique (workflow_id, seq),
  unique (run_id, workflow_id, ordinal),
  constraint mutation_result_when_applied check (status <> 'applied' or result is not null)
);

create unique index mutation_one_open on mutation (workflow_id, parked)
  where status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate';
create index mutation_by_key on mutation (mutation_key, workflow_id);
create index mutation_by_item on mutation (item_id) where item_id is not null;
create index mutation_contradicted on mutation (workflow_id) where contradicted_at is not null;
create index mutation_by_lineage on mutation (lineage) where run_id <> lineage;
create index mutation_ended on mutation (workflow_id, connector, status) where status in ('failed', 'skipped');
create index mutation_by_time on mutation (workflow_id, first_sent_at, connector, operation);

create table approval (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  id integer not null primary key,
  run_id integer not null references run (id),
  capability text not null,
  account text not null,
  because text not null,
  intent text not null,
  digest text not null,
  status text not null constraint approval_status_known check (status in
    ('pending', 'approved', 'rejected', 'expired', 'void', 'consumed')),
  expires_at integer not null,
  decided_by text,
  created_at integer not null,
  updated_at integer not null,
  unique (workflow_id, seq)
);

create unique index approval_one_open on approval (run_id) where status in ('pending', 'approved');

create table repair (
  workflow_id integer not null references workflow (id),
  seq integer not null,
  id integer not null primary key,
  run_id integer not null references run (id),
  lineage integer not null,
  status text not null constraint repair_status_known check (status in
    ('asked', 'declined', 'refused', 'waiting', 'deployed', 'rejected')),
  source text,
  impact text constraint repair_impact_known check (impact in ('safe', 'potentially_impactful')),
  note text,
  trial text, -- what came of trying it on recorded runs
  created_at integer not null,
  updated_at integer not null,
  unique (workflow_id, seq)
);

create unique index repair_one_open on repair (run_id) where status in ('asked', 'waiting');
create index repair_by_run on repair (run_id, seq);
create index repair_by_lineage on repair (workflow_id, lineage);

-- A script that somebody proposes: its text, what the host found out about it (`facts`, engine/proposal.py), and a digest
-- over all of that, which a person accepts. Its workflow is there already, or it is a new one of that name.
create table proposal (
  id integer not null primary key,
  workflow_id integer references workflow (id),
  name text not null,
  status text not null constraint proposal_status_known check (status in
    ('waiting', 'accepted', 'declined', 'withdrawn', 'superseded', 'expired')),
  proposer text not null,
  source text not null,
  cases text,
  wanted text not null, -- what its proposer would like to be granted
  why text not null,
  work text, -- how a model came to it
  facts text not null,
  digest text not null,
  note text, -- how it ended
  expires_at integer not null,
  created_at integer not null,
  updated_at integer not null
);

create unique index proposal_one_waiting on proposal (name, proposer) where status = 'waiting';

create table trace (
  workflow_id integer not null,
  run_id integer not null references run (id),
  position integer not null,
  step text not null,
  kind text not null,
  name text not null,
  args text,
  answer text,
  error text,
  duration_ms integer,
  at integer not null,
  primary key (run_id, workflow_id, position)
) without rowid;

-- What one step of a run was given, for another script to be tried with (engine/recording.py). A long text in it stands in
-- recorded_text, once for all runs; `newest` is the number of the newest run that was given it. Only the newest runs have
-- a recording, so these count for no workflow's bytes: they have limits of their own.
create table recording (
  workflow_id integer not null references workflow (id),
  seq integer not null, -- of the run
  step text not null,
  given text not null,
  primary key (workflow_id, seq, step)
) without rowid;

create table recorded_text (
  workflow_id integer not null references workflow (id),
  hash text not null,
  newest integer not null,
  text text not null,
  primary key (workflow_id, hash)
) without rowid;

create index recorded_text_by_run on recorded_text (workflow_id, newest);

create table action (
  seq integer primary key,
  workflow_id integer,
  act text not null,
  subject text not null,
  subject_id integer not null, -- or a number that stands for another word
  actor text not null,
  detail text not null,
  at integer not null,
  shown integer,
  entry integer not null -- of the account
);

-- One entry per commit: who wrote it and what moved, packed; `chain` is a hash over the entry and the chain before it.
create table account (
  seq integer primary key,
  at integer not null,
  told text not null,
  chain blob not null
);

create table account_subject (
  subject_id integer not null, -- or a number that stands for another word
  entry integer not null, -- of account
  primary key (subject_id, entry)
) without rowid;

create table channel (
  name text not null primary key,
  attempts integer not null default 0,
  tried_at integer,
  retry_at integer,
  told_at integer,
  failing_since_at integer,
  error text,
  digest_at integer
) without rowid;

create table notice (
  channel text not null references channel (name) on delete cascade,
  question text not null,
  mark text not null,
  told_at integer not null,
  times integer not null,
  primary key (channel, question)
) without rowid;

create view item_standing as
select t.*,
  (select o.id from run o where o.workflow_id = t.workflow_id
    and (o.status = 'active' or o.status = 'paused' or o.status = 'failed')
    and (o.item_id is null or o.item_id = t.id)
    and exists (select 1 from item_run x join run r on r.id = x.run_id
      where x.workflow_id = t.workflow_id and x.item_id = t.id and r.lineage = o.lineage) order by o.parked, o.id limit 1) as held_by
from item t;

-- Everything that decides whether a handler is due: its own times, and its topics' oldest waiting event.
create view handler_due as
select h.*,
  (select max(t.touched) from topic t where t.workflow_id = h.workflow_id and t.subscriber = h.handler) as touched,
  (select min(w.seq) from (
     select (select e.seq from event e where e.workflow_id = t.workflow_id and e.topic = t.name
       and e.status = 'pending' and e.reserved_by is null and e.held_by is null order by e.seq limit 1) as seq
     from topic t where t.workflow_id = h.workflow_id and t.subscriber = h.handler) w) as oldest
from handler_state h where h.present = 1;

-- The inputs behind what a run reserved, as they were when it reserved: what it did is caused by these and no others.
create view reservation_cause as
select v.workflow_id, v.run_id, v.event_id, c.input_id from reservation v cross join event_cause c
where c.workflow_id = v.workflow_id and c.event_id = v.event_id and c.attempt = v.attempt and c.revision <= v.revision;

-- The events for which a parked run keeps others away, as they were reserved: a run that must choose anew, and waits for
-- its turn, keeps those of the run that it carries on from.
create view parked_reservation as
select p.workflow_id, p.run_id, v.event_id, v.attempt, v.revision
from parked p cross join run r cross join reservation v
where r.id = p.run_id and v.workflow_id = p.workflow_id
  and v.run_id = case when r.phase = 'preparing' then coalesce(r.retry_of, r.id) else r.id end;

-- The inputs behind these.
create view parked_cause as
select v.workflow_id, v.run_id, c.input_id from parked_reservation v cross join event_cause c
where c.workflow_id = v.workflow_id and c.event_id = v.event_id and c.attempt = v.attempt and c.revision <= v.revision;

-- An event with the inputs behind its present attempt, those that came while a run had reserved it, and how many payloads
-- came after the one that it has: all of them, and those that are still kept.
create view event_standing as
select e.*,
  (select string_agg(cast(c.input_id as text), ',') from event_cause c
    where c.workflow_id = e.workflow_id and c.event_id = e.id and c.attempt = e.attempt) as causes,
  (select string_agg(cast(h.input_id as text), ',') from held_cause h
    where h.workflow_id = e.workflow_id and h.event_id = e.id and h.attempt = e.attempt) as joined,
  (select count(*) from event_revision v
    where v.workflow_id = e.workflow_id and v.event_id = e.id and v.revision > e.revision) as held
from event e;

create view input_standing as
select i.*,
  exists (select 1 from event_cause c join event e on e.id = c.event_id and e.attempt = c.attempt
    join topic t on t.workflow_id = e.workflow_id and t.name = e.topic and t.subscriber is not null
    where c.workflow_id = i.workflow_id and c.input_id = i.id and e.status = 'pending')
  or exists (select 1 from held_cause h join event e on e.id = h.event_id and e.attempt = h.attempt
    where h.workflow_id = i.workflow_id and h.input_id = i.id and e.reserved_by is not null)
  or exists (select 1 from item t
    where t.input_id = i.id and t.status in ('processing', 'failed', 'needs_attention')) as waiting,
  exists (select 1 from event_cause c join event e on e.id = c.event_id and e.attempt = c.attempt
    join run r on r.id = e.reserved_by
    where c.workflow_id = i.workflow_id and c.input_id = i.id
      and (r.status = 'failed' or r.reason = 'approval' or r.exhausted = 1
        or exists (select 1 from mutation m where m.workflow_id = r.workflow_id and m.lineage = r.lineage
          and m.status = 'indeterminate')))
  or exists (select 1 from item_standing t left join run r on r.id = t.held_by
    where t.input_id = i.id and t.status in ('processing', 'failed', 'needs_attention')
      and (r.status = 'failed' or r.reason = 'approval' or r.exhausted = 1
        or (r.id is null and t.status = 'failed')
        or exists (select 1 from mutation m where m.item_id = t.id and m.status = 'indeterminate'))) as needs_you,
  exists (select 1 from item t where t.input_id = i.id and t.status = 'skipped') as item_skipped,
  exists (select 1 from held_cause h where h.workflow_id = i.workflow_id and h.input_id = i.id
    and not exists (select 1 from event_cause c
      where c.workflow_id = h.workflow_id and c.event_id = h.event_id and c.input_id = h.input_id)) as late
from input i;
