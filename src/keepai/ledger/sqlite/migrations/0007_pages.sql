-- What many workflows write at one moment lies on the same few pages: rows that belong to a run, an event or an input are
-- found by its id first, which sorts by time, and not by their workflow's. An index whose first column tells most rows apart
-- is also the cheaper to search. Nobody reads how often a host has synced.

drop view input_standing;
drop view item_standing;

alter table event_cause rename to event_cause_before;
create table event_cause (
  workflow_id text not null,
  event_id text not null references event (id),
  input_id text not null references input (id),
  primary key (event_id, workflow_id, input_id)
) without rowid;
insert into event_cause (workflow_id, event_id, input_id)
select workflow_id, event_id, input_id from event_cause_before;
drop table event_cause_before;
create index event_cause_by_input on event_cause (input_id, workflow_id, event_id);

alter table reservation rename to reservation_before;
create table reservation (
  workflow_id text not null,
  run_id text not null references run (id),
  position integer not null,
  event_id text not null references event (id),
  topic text not null,
  message_id text not null,
  attempt integer not null,
  payload text not null,
  primary key (run_id, workflow_id, event_id)
) without rowid;
insert into reservation (workflow_id, run_id, position, event_id, topic, message_id, attempt, payload)
select workflow_id, run_id, position, event_id, topic, message_id, attempt, payload from reservation_before;
drop table reservation_before;
create index reservation_by_event on reservation (event_id, workflow_id);

alter table mutation rename to mutation_before;
create table mutation (
  workflow_id text not null references workflow (id),
  seq integer not null,
  id text not null unique,
  run_id text not null references run (id),
  ordinal integer not null,
  lineage text not null,
  mutation_key text not null,
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
  sender text not null,
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
  item_id text references item (id),
  kept text,
  contradicted_at integer,
  primary key (workflow_id, seq),
  unique (run_id, workflow_id, ordinal),
  constraint mutation_result_when_applied check (status <> 'applied' or result is not null)
);
insert into mutation (workflow_id, seq, id, run_id, ordinal, lineage, mutation_key, idempotency_key, connector, operation, account, target, identity, payload, params, subkey, title, preview, status, result, attempts, sender, epoch, first_sent_at, deadline_at, closed_at, doubted_at, reconcile_attempts, error, evidence, resolution, created_at, updated_at, item_id, kept, contradicted_at)
select workflow_id, seq, id, run_id, ordinal, lineage, mutation_key, idempotency_key, connector, operation, account, target, identity, payload, params, subkey, title, preview, status, result, attempts, sender, epoch, first_sent_at, deadline_at, closed_at, doubted_at, reconcile_attempts, error, evidence, resolution, created_at, updated_at, item_id, kept, contradicted_at from mutation_before;
drop table mutation_before;
create unique index mutation_one_open on mutation (workflow_id)
  where status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate';
create index mutation_by_key on mutation (mutation_key, workflow_id);
create index mutation_by_item on mutation (item_id) where item_id is not null;
create index mutation_contradicted on mutation (workflow_id) where contradicted_at is not null;
create index mutation_by_lineage on mutation (lineage, workflow_id, seq);
create index mutation_ended on mutation (workflow_id, connector, status) where status in ('failed', 'skipped');
create index mutation_by_time on mutation (workflow_id, first_sent_at, connector, operation);

alter table trace rename to trace_before;
create table trace (
  workflow_id text not null,
  run_id text not null references run (id),
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
insert into trace (workflow_id, run_id, position, step, kind, name, args, answer, error, duration_ms, at)
select workflow_id, run_id, position, step, kind, name, args, answer, error, duration_ms, at from trace_before;
drop table trace_before;

drop index run_by_lineage;
create index run_by_lineage on run (lineage, workflow_id);

drop index transition_by_subject;
create index transition_by_subject on transition (subject);

alter table host drop column flushes;

create view item_standing as
select t.*,
  (select o.id from run o where o.workflow_id = t.workflow_id
    and (o.status = 'active' or o.status = 'paused' or o.status = 'failed')
    and exists (select 1 from item_run x join run r on r.id = x.run_id
      where x.workflow_id = t.workflow_id and x.item_id = t.id and r.lineage = o.lineage)) as held_by
from item t;

create view input_standing as
select i.*,
  exists (select 1 from event_cause c join event e on e.id = c.event_id
    join topic t on t.workflow_id = e.workflow_id and t.name = e.topic and t.subscriber is not null
    where c.workflow_id = i.workflow_id and c.input_id = i.id and e.status = 'pending')
  or exists (select 1 from item t
    where t.input_id = i.id and t.status in ('processing', 'failed', 'needs_attention')) as waiting,
  exists (select 1 from event_cause c join event e on e.id = c.event_id join run r on r.id = e.reserved_by
    where c.workflow_id = i.workflow_id and c.input_id = i.id
      and (r.status = 'failed' or r.reason = 'approval' or r.exhausted = 1
        or exists (select 1 from mutation m where m.workflow_id = r.workflow_id and m.lineage = r.lineage
          and m.status = 'indeterminate')))
  or exists (select 1 from item_standing t left join run r on r.id = t.held_by
    where t.input_id = i.id and t.status in ('processing', 'failed', 'needs_attention')
      and (r.status = 'failed' or r.reason = 'approval' or r.exhausted = 1
        or (r.id is null and t.status = 'failed')
        or exists (select 1 from mutation m where m.item_id = t.id and m.status = 'indeterminate'))) as needs_you,
  exists (select 1 from item t where t.input_id = i.id and t.status = 'skipped') as item_skipped
from input i;
