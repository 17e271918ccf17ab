create table item (
  workflow_id text not null references workflow (id),
  seq integer not null,
  id text not null unique,
  external_id text not null,
  title text not null,
  status text not null constraint item_status_known check (status in
    ('processing', 'done', 'failed', 'needs_attention', 'skipped')),
  attempt integer not null default 1,
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
