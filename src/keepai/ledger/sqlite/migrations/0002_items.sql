create table item (
  workflow_id text not null references workflow (id),
  seq integer not null,
  id text not null unique,
  external_id text not null,
  title text not null,
  status text not null constraint item_status_known check (status in
    ('processing', 'done', 'failed', 'needs_attention', 'skipped')),
  attempt integer not null default 1,
  begun integer not null,
  input_id text not null references input (id),
  handler text not null,
  created_at integer not null,
  updated_at integer not null,
  primary key (workflow_id, seq),
  unique (workflow_id, external_id)
);

create index item_by_input on item (input_id);
create index item_unfinished on item (workflow_id) where status in ('processing', 'failed', 'needs_attention');

create table item_run (
  workflow_id text not null,
  run_id text not null references run (id),
  item_id text not null references item (id),
  seq integer not null,
  attempt integer not null,
  primary key (workflow_id, run_id, item_id)
) without rowid;

create index item_run_by_item on item_run (workflow_id, item_id);

alter table mutation add column item_id text references item (id);
alter table mutation add column kept text;
alter table mutation add column contradicted_at integer;

create index mutation_by_key on mutation (workflow_id, mutation_key);
create index mutation_by_item on mutation (item_id) where item_id is not null;
create index mutation_contradicted on mutation (workflow_id) where contradicted_at is not null;

alter table action add column shown integer;

alter table transition add column why text;
alter table transition add column actor text;
alter table transition add column chain text;

create view item_standing as
select t.*,
  (select o.id from run o where o.workflow_id = t.workflow_id and o.status in ('active', 'paused', 'failed')
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
