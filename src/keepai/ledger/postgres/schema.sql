-- The tables of ledger/sqlite/schema.sql, which tells how a piece of work flows through them, as PostgreSQL spells them.
--
-- Names, columns, checks and indexes are the same; a test compares them. What is different, and why:
--   Numbers are bigint and keys of mutations bytea. Every text is compared byte by byte (collate "C"), as SQLite does:
--   the order of a list must not depend on the locale of a server.
--   `heartbeat`, `owner`, `nudge` and `late_mark` take the place of the lock on the file: several hosts work here.
--   Three functions have the names that they have in SQLite, so that one text of a statement serves both.
--
-- Everything stands in a schema of its own, so that a database can be shared with other programs. The triggers are
-- derived from model/states.py, and from the checks that stand here, when the ledger is opened
-- (ledger/postgres/triggers.py): the tables are made without checks.

-- Which schema this is, which one a host must know to use it, and a hash of the triggers as they were made. The row is
-- also the lock of the ledger: every transaction that writes locks it first.
create table ledger (
  one bigint not null primary key default 1 constraint ledger_is_one_row check (one = 1),
  schema bigint not null,
  schema_needed bigint not null,
  guards text collate "C" not null
);

create table host (
  epoch bigint not null primary key,
  id bigint not null unique,
  machine text collate "C" not null,
  pid bigint not null,
  started_at bigint not null,
  ended_at bigint
);

-- Where the ledger is, if not here and nowhere else (ledger/moving.py): it went to another place, or it came from one and
-- that one has not said yet that it went. Then there is one row, and no host begins. `mover` is the same in both places.
create table moved (
  one bigint not null primary key default 1 constraint moved_is_one_row check (one = 1),
  mover text collate "C" not null,
  went bigint not null, -- 1: to that place; 0: it came from there
  place text collate "C" not null,
  at bigint not null
);

-- How much lies here for a workflow is counted in its row with every commit (ledger/transitions/kept_bytes.py): of its events,
-- of its runs that have ended, of its inputs and items. What its open run has kept so far is in that run's row.
create table workflow (
  id bigint not null primary key,
  name text collate "C" not null unique,
  status text collate "C" not null constraint workflow_status_known check (status in ('active', 'paused', 'stopped')),
  major bigint not null,
  minor bigint not null,
  sequence bigint not null default 0,
  event_bytes bigint not null default 0,
  run_bytes bigint not null default 0,
  input_bytes bigint not null default 0,
  created_at bigint not null,
  updated_at bigint not null,
  waiting text collate "C" not null default 'stop' constraint workflow_waiting_known check (
    waiting in ('stop', 'intake', 'others')),
  waiting_configured bigint not null default 1, -- keep.toml says so, or nobody; 0: a person said so
  parked bigint not null default 0 -- how many of its runs are parked
);

-- The hosts that have a place here: when each last said that it lives, by the clock of this database. One that was silent
-- for too long has lost its place, and whatever it still writes is refused. Its row stays until it is known to be dead:
-- `boot` is its machine's boot and `lock` a file there that the host and the processes of its connectors hold locked.
-- Whoever can lock it there knows that all of them are dead. `works`: it runs workflows; `drains`: it shall end; `knows`:
-- the newest schema that it can use.
create table heartbeat (
  epoch bigint not null primary key references host (epoch),
  beat_at bigint not null,
  boot text collate "C" not null,
  lock text collate "C" not null,
  works bigint not null,
  knows bigint not null,
  drains bigint not null default 0,
  lost_at bigint
);

-- Which host runs a workflow, if it has a place; otherwise, which one did. No row: nobody does.
create table owner (
  workflow_id bigint not null primary key references workflow (id),
  epoch bigint not null references host (epoch)
);

create index owner_epoch on owner (epoch);

-- Workflows in which somebody has changed something that does not run them: whoever does has not seen it yet.
create table nudge (
  workflow_id bigint not null primary key references workflow (id)
);

-- What a host knows of the end of its own call, after another host has taken the workflow over: that one has not seen it
-- yet (mutations.LateEvidence).
create table late_mark (
  mutation_id bigint not null primary key,
  epoch bigint not null references host (epoch),
  said text collate "C" not null,
  happened bigint,
  result text collate "C",
  outcome text collate "C",
  at bigint not null
);

create table put_back (
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  accepted_at bigint not null,
  since_at bigint not null,
  until_at bigint not null,
  primary key (workflow_id, seq)
);

create table script (
  workflow_id bigint not null references workflow (id),
  major bigint not null,
  minor bigint not null,
  source text collate "C" not null,
  hash text collate "C" not null,
  manifest text collate "C" not null,
  author text collate "C" not null constraint script_author_known check (author in ('person', 'planner', 'maintainer')),
  impact text collate "C" not null constraint script_impact_known check (impact in ('safe', 'potentially_impactful')),
  created_at bigint not null,
  activated_at bigint not null,
  primary key (workflow_id, major, minor)
);

-- That Keep itself tried a script and found no fault, by the hash of its text: the last such time. What it was tried
-- with is in `facts`; engine/certificate.py says when that no longer holds.
create table certificate (
  script_hash text not null primary key,
  facts text not null,
  made_by text not null,
  made_at bigint not null
);

-- Who may come in by a proof of their own: agents and users, by a token. `secret` is a hash of that proof (engine/tokens_and_pins.py). The
-- person without a name is whoever types at the terminal of the host's own account; their proof is the PIN. A row whose
-- principal was removed stays, without its hash.
create table principal (
  kind text collate "C" not null constraint principal_kind_known check (kind in ('person', 'agent')),
  name text collate "C" not null,
  role text collate "C" not null constraint principal_role_known check (
    kind = 'person' and role in ('viewer', 'operator', 'owner') or kind = 'agent' and role in ('look', 'propose')
  ),
  secret text collate "C" unique,
  added_by text collate "C" not null,
  added_at bigint not null,
  removed_by text collate "C",
  removed_at bigint,
  primary key (kind, name)
);

create table topic (
  workflow_id bigint not null references workflow (id),
  name text collate "C" not null,
  subscriber text collate "C",
  touched bigint not null default 0,
  primary key (workflow_id, name)
);

create table handler_state (
  workflow_id bigint not null references workflow (id),
  handler text collate "C" not null,
  kind text collate "C" not null,
  present bigint not null,
  state text collate "C",
  wake_at bigint,
  recheck_at bigint,
  next_run_at bigint,
  queued bigint not null default 0, -- why it is due at once: see QUEUED in engine/scheduler.py
  observed bigint,
  progressed bigint not null default 0,
  ran_at bigint,
  gap_since_at bigint,
  gap_until_at bigint,
  updated_at bigint not null,
  primary key (workflow_id, handler)
);

create table grant_rule (
  workflow_id bigint not null references workflow (id),
  capability text collate "C" not null,
  mode text collate "C" not null constraint grant_mode_known check (mode in ('allow', 'ask', 'deny')),
  rule text collate "C" not null,
  account text collate "C" not null, -- of the connector when it was granted; empty if it has none
  configured bigint not null, -- keep.toml says so; 0: a person said so
  seq bigint not null,
  updated_at bigint not null,
  primary key (workflow_id, capability)
);

create table input (
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  id bigint not null primary key,
  source text collate "C" not null,
  type text collate "C" not null,
  external_id text collate "C" not null,
  title text collate "C" not null,
  status text collate "C" not null constraint input_status_known check (status in ('active', 'skipped')),
  created_by bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  unique (workflow_id, seq),
  unique (workflow_id, source, type, external_id)
);

create index input_skipped on input (workflow_id, source, type) where status = 'skipped';

create table event (
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  id bigint not null primary key,
  topic text collate "C" not null,
  message_id text collate "C" not null,
  payload text collate "C" not null,
  revision bigint not null default 1,
  newest bigint not null default 1,
  status text collate "C" not null constraint event_status_known check (
    status = 'pending' or status = 'consumed' or status = 'skipped'),
  reserved_by bigint,
  created_by bigint not null,
  depth bigint not null default 0,
  attempt bigint not null default 1,
  created_at bigint not null,
  updated_at bigint not null,
  held_by bigint, -- a parked run: the event shares an input with what that has reserved
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
  workflow_id bigint not null,
  event_id bigint not null references event (id),
  attempt bigint not null,
  input_id bigint not null references input (id),
  revision bigint not null,
  primary key (event_id, workflow_id, attempt, input_id)
);

create index event_cause_by_input on event_cause (input_id, workflow_id, event_id);

create table event_revision (
  workflow_id bigint not null,
  event_id bigint not null references event (id),
  revision bigint not null,
  payload text collate "C" not null,
  created_by bigint not null,
  created_at bigint not null,
  primary key (workflow_id, event_id, revision)
);

-- `attempt` is that of the event if a run had reserved it when the revision came, and 0 if it had ended.
create table held_cause (
  workflow_id bigint not null,
  event_id bigint not null references event (id),
  revision bigint not null,
  input_id bigint not null references input (id),
  attempt bigint not null,
  primary key (event_id, workflow_id, revision, input_id)
);

create index held_cause_by_input on held_cause (workflow_id, input_id, event_id);

create table run (
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  id bigint not null primary key,
  handler text collate "C" not null,
  kind text collate "C" not null,
  major bigint not null,
  minor bigint not null,
  trigger text collate "C" not null,
  retry_of bigint references run (id),
  lineage bigint not null,
  attempt bigint not null,
  phase text collate "C" not null constraint run_phase_known check (
    phase = 'preparing' or phase = 'prepared' or phase = 'mutating' or phase = 'mutated' or phase = 'emitting'
    or phase = 'executing' or phase = 'committed'),
  status text collate "C" not null constraint run_status_known check (
    status = 'active' or status = 'paused' or status = 'failed' or status = 'committed' or status = 'crashed'
    or status = 'superseded' or status = 'abandoned'),
  reason text collate "C" constraint run_reason_known check (
    reason = 'transient' or reason = 'approval' or reason = 'reconciliation' or reason = 'limit' or reason = 'held'
    or reason = 'logic' or reason = 'internal'),
  prepare_result text collate "C",
  prepared_at bigint,
  outcome text collate "C",
  error text collate "C",
  retry_at bigint,
  failures bigint not null default 0,
  exhausted bigint not null default 0,
  observed bigint not null,
  host bigint not null,
  epoch bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  due_at bigint,
  bytes bigint not null default 0,
  parked bigint not null default 0, -- its own seq while it is
  item_id bigint, -- of a routine: the one item that it carries on; others go on with the rest
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

alter table event add constraint event_reserved_by_fkey foreign key (reserved_by) references run (id);

create unique index run_once_per_time on run (workflow_id, handler, due_at) where due_at is not null;
-- One run of a workflow is open, and further ones that are parked; the same of mutations without a known outcome.
create unique index run_one_open on run (workflow_id, parked)
  where status = 'active' or status = 'paused' or status = 'failed';
-- The first run of a lineage is found by its id, and what it sent by that: most runs are the only ones of theirs.
create index run_by_lineage on run (lineage) where retry_of is not null;
create index run_by_item on run (item_id) where item_id is not null;

-- A run that waits while others of its workflow go on, and what it keeps them from: events are in event.held_by.
create table parked (
  workflow_id bigint not null references workflow (id),
  run_id bigint not null references run (id),
  turn bigint not null, -- the number of its lineage's first run: among runs with one target, the lower goes first
  handler text collate "C", -- that may not begin meanwhile
  writes text collate "C" not null constraint parked_writes_known check (writes in ('nothing', 'target', 'connector', 'anything')),
  connector text collate "C" not null,
  account text collate "C" not null,
  target text collate "C" not null,
  parked_at bigint not null,
  primary key (run_id, workflow_id)
);

create index parked_of_workflow on parked (workflow_id, turn);

create table reservation (
  workflow_id bigint not null,
  run_id bigint not null references run (id),
  position bigint not null,
  event_id bigint not null references event (id),
  topic text collate "C" not null,
  message_id text collate "C" not null,
  attempt bigint not null,
  revision bigint not null,
  payload text collate "C",  -- null: as the event has it; kept here before the event gets another
  primary key (run_id, workflow_id, event_id)
);

create index reservation_by_event on reservation (event_id, workflow_id);

create table item (
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  id bigint not null primary key,
  external_id text collate "C" not null,
  title text collate "C" not null,
  status text collate "C" not null constraint item_status_known check (
    status = 'processing' or status = 'done' or status = 'failed' or status = 'needs_attention'
    or status = 'skipped'),
  attempt bigint not null default 1,
  begun bigint not null,
  input_id bigint not null references input (id),
  handler text collate "C" not null,
  created_at bigint not null,
  updated_at bigint not null,
  unique (workflow_id, seq),
  unique (workflow_id, external_id)
);

create index item_by_input on item (input_id);
create index item_unfinished on item (workflow_id) where status in ('processing', 'failed', 'needs_attention');

create table item_run (
  workflow_id bigint not null,
  run_id bigint not null references run (id),
  item_id bigint not null references item (id),
  seq bigint not null,
  attempt bigint not null,
  primary key (workflow_id, run_id, item_id)
);

create index item_run_by_item on item_run (workflow_id, item_id);

create table mutation (
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  id bigint not null primary key,
  run_id bigint not null references run (id),
  ordinal bigint not null,
  lineage bigint not null,
  mutation_key bytea not null,
  idempotency_key text collate "C" not null,
  connector text collate "C" not null,
  operation text collate "C" not null,
  account text collate "C" not null,
  target text collate "C" not null,
  identity text collate "C" not null,
  payload text collate "C" not null,
  params text collate "C" not null,
  subkey text collate "C",
  title text collate "C",
  preview text collate "C" not null,
  status text collate "C" not null constraint mutation_status_known check (
    status = 'in_flight' or status = 'applied' or status = 'failed' or status = 'needs_reconcile'
    or status = 'indeterminate' or status = 'skipped'),
  result text collate "C",
  attempts bigint not null,
  sender bigint not null,
  epoch bigint not null,
  first_sent_at bigint not null,
  deadline_at bigint not null,
  closed_at bigint,
  doubted_at bigint,
  reconcile_attempts bigint not null default 0,
  error text collate "C",
  evidence text collate "C",
  resolution text collate "C",
  created_at bigint not null,
  updated_at bigint not null,
  item_id bigint references item (id),
  kept text collate "C",
  contradicted_at bigint,
  parked bigint not null default 0, -- its own seq while its run is, and its outcome is unknown
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
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  id bigint not null primary key,
  run_id bigint not null references run (id),
  capability text collate "C" not null,
  account text collate "C" not null,
  because text collate "C" not null,
  intent text collate "C" not null,
  digest text collate "C" not null,
  status text collate "C" not null constraint approval_status_known check (status in
    ('pending', 'approved', 'rejected', 'expired', 'void', 'consumed')),
  expires_at bigint not null,
  decided_by text collate "C",
  created_at bigint not null,
  updated_at bigint not null,
  unique (workflow_id, seq)
);

create unique index approval_one_open on approval (run_id) where status in ('pending', 'approved');

create table repair (
  workflow_id bigint not null references workflow (id),
  seq bigint not null,
  id bigint not null primary key,
  run_id bigint not null references run (id),
  lineage bigint not null,
  status text collate "C" not null constraint repair_status_known check (status in
    ('asked', 'declined', 'refused', 'waiting', 'deployed', 'rejected')),
  source text collate "C",
  impact text collate "C" constraint repair_impact_known check (impact in ('safe', 'potentially_impactful')),
  note text collate "C",
  trial text collate "C", -- what came of trying it on recorded runs
  created_at bigint not null,
  updated_at bigint not null,
  unique (workflow_id, seq)
);

create unique index repair_one_open on repair (run_id) where status in ('asked', 'waiting');
create index repair_by_run on repair (run_id, seq);
create index repair_by_lineage on repair (workflow_id, lineage);

-- A script that somebody proposes: its text, what the host found out about it (`facts`, engine/proposal.py), and a digest
-- over all of that, which a person accepts. Its workflow is there already, or it is a new one of that name.
create table proposal (
  id bigint not null primary key,
  workflow_id bigint references workflow (id),
  name text collate "C" not null,
  status text collate "C" not null constraint proposal_status_known check (status in
    ('waiting', 'accepted', 'declined', 'withdrawn', 'superseded', 'expired')),
  proposer text collate "C" not null,
  source text collate "C" not null,
  cases text collate "C",
  wanted text collate "C" not null, -- what its proposer would like to be granted
  why text collate "C" not null,
  work text collate "C", -- how a model came to it
  facts text collate "C" not null,
  digest text collate "C" not null,
  note text collate "C", -- how it ended
  expires_at bigint not null,
  created_at bigint not null,
  updated_at bigint not null
);

create unique index proposal_one_waiting on proposal (name, proposer) where status = 'waiting';

create table trace (
  workflow_id bigint not null,
  run_id bigint not null references run (id),
  position bigint not null,
  step text collate "C" not null,
  kind text collate "C" not null,
  name text collate "C" not null,
  args text collate "C",
  answer text collate "C",
  error text collate "C",
  duration_ms bigint,
  at bigint not null,
  primary key (run_id, workflow_id, position)
);

-- What one step of a run was given, for another script to be tried with (engine/recording.py). A long text in it stands in
-- recorded_text, once for all runs; `newest` is the number of the newest run that was given it. Only the newest runs have
-- a recording, so these count for no workflow's bytes: they have limits of their own.
create table recording (
  workflow_id bigint not null references workflow (id),
  seq bigint not null, -- of the run
  step text collate "C" not null,
  given text collate "C" not null,
  primary key (workflow_id, seq, step)
);

create table recorded_text (
  workflow_id bigint not null references workflow (id),
  hash text collate "C" not null,
  newest bigint not null,
  text text collate "C" not null,
  primary key (workflow_id, hash)
);

create index recorded_text_by_run on recorded_text (workflow_id, newest);

create table action (
  seq bigint generated by default as identity primary key,
  workflow_id bigint,
  act text collate "C" not null,
  subject text collate "C" not null,
  subject_id bigint not null, -- or a number that stands for another word
  actor text collate "C" not null,
  detail text collate "C" not null,
  at bigint not null,
  shown bigint,
  entry bigint not null -- of the account
);

-- One entry per commit: who wrote it and what moved, packed; `chain` is a hash over the entry and the chain before it.
create table account (
  seq bigint primary key,
  at bigint not null,
  told text collate "C" not null,
  chain bytea not null
);

create table account_subject (
  subject_id bigint not null, -- or a number that stands for another word
  entry bigint not null, -- of account
  primary key (subject_id, entry)
);

create table channel (
  name text collate "C" not null primary key,
  attempts bigint not null default 0,
  tried_at bigint,
  retry_at bigint,
  told_at bigint,
  failing_since_at bigint,
  error text collate "C",
  digest_at bigint
);

create table notice (
  channel text collate "C" not null references channel (name) on delete cascade,
  question text collate "C" not null,
  mark text collate "C" not null,
  told_at bigint not null,
  times bigint not null,
  primary key (channel, question)
);

-- What others sent to a connector of the type webhook.inbox: it may come in at any host. `last` is the number of the newest
-- delivery, and its row the lock under which they are numbered: so they become visible in the order of their numbers.
create table inbox (
  name text collate "C" not null primary key,
  last bigint not null
);

create table delivery (
  inbox text collate "C" not null references inbox (name),
  number bigint not null,
  digest text collate "C" not null, -- of the id that its sender gave it
  content text collate "C" not null,
  primary key (inbox, number),
  unique (inbox, digest)
);

-- Names that SQLite has and PostgreSQL has not.
create function instr(value text, part text) returns bigint language sql immutable
as $$ select strpos(value, part)::bigint $$;

create function hex(value bytea) returns text language sql immutable
as $$ select upper(encode(value, 'hex')) $$;

-- PostgreSQL refuses to read a JSON text with the character 0 in it, which SQLite reads: here it is read as another.
create function json_extract(value text, path text) returns text language sql immutable
as $$ select regexp_replace(value, '(?<!\\)((?:\\\\)*)\\u0000', '\1\ufffd', 'g')::json #>> string_to_array(substr(path, 3), '.') $$;

-- Rows that refer to a row which is not there: of each reference, which is by one column, what has no partner.
create function broken_references() returns table (referring text, line text, missing text) language plpgsql stable
as $$
declare
  reference record;
begin
  for reference in
    select c.conrelid::regclass as child, a.attname as child_column, c.confrelid::regclass as parent,
      b.attname as parent_column
    from pg_constraint c
    join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
    join pg_attribute b on b.attrelid = c.confrelid and b.attnum = c.confkey[1]
    where c.contype = 'f' and c.connamespace = current_schema()::regnamespace order by c.conname
  loop
    return query execute format(
      'select %L::text, c.%I::text, %L::text from %s c where c.%I is not null and not exists '
      '(select 1 from %s p where p.%I = c.%I)',
      reference.child, reference.child_column, reference.parent, reference.child, reference.child_column,
      reference.parent, reference.parent_column, reference.child_column);
  end loop;
end
$$;

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
