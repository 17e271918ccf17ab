-- For a list of more than two words SQLite fills a table of its own whenever it checks one, so the checks and
-- the indexes of what is open compare. What is in the rows stays as it is: only the text of the tables is another.
pragma writable_schema = on;
update sqlite_schema set sql = replace(sql, 'check (status in (''pending'', ''consumed'', ''skipped''))',
  'check (
    status = ''pending'' or status = ''consumed'' or status = ''skipped'')') where type = 'table' and name = 'event';
update sqlite_schema set sql = replace(sql, 'check (phase in
    (''preparing'', ''prepared'', ''mutating'', ''mutated'', ''emitting'', ''executing'', ''committed''))',
  'check (
    phase = ''preparing'' or phase = ''prepared'' or phase = ''mutating'' or phase = ''mutated'' or phase = ''emitting''
    or phase = ''executing'' or phase = ''committed'')') where type = 'table' and name = 'run';
update sqlite_schema set sql = replace(sql, 'check (status in
    (''active'', ''paused'', ''failed'', ''committed'', ''crashed'', ''superseded'', ''abandoned''))',
  'check (
    status = ''active'' or status = ''paused'' or status = ''failed'' or status = ''committed'' or status = ''crashed''
    or status = ''superseded'' or status = ''abandoned'')') where type = 'table' and name = 'run';
update sqlite_schema set sql = replace(sql, 'check (reason in
    (''transient'', ''approval'', ''reconciliation'', ''logic'', ''internal''))',
  'check (
    reason = ''transient'' or reason = ''approval'' or reason = ''reconciliation'' or reason = ''logic''
    or reason = ''internal'')') where type = 'table' and name = 'run';
update sqlite_schema set sql = replace(sql, 'reason is not null and reason in (''transient'', ''approval'', ''reconciliation'')',
  'reason is not null and (reason = ''transient'' or reason = ''approval'' or reason = ''reconciliation'')') where type = 'table' and name = 'run';
update sqlite_schema set sql = replace(sql, 'check (status in
    (''processing'', ''done'', ''failed'', ''needs_attention'', ''skipped''))',
  'check (
    status = ''processing'' or status = ''done'' or status = ''failed'' or status = ''needs_attention''
    or status = ''skipped'')') where type = 'table' and name = 'item';
update sqlite_schema set sql = replace(sql, 'check (status in
    (''in_flight'', ''applied'', ''failed'', ''needs_reconcile'', ''indeterminate'', ''skipped''))',
  'check (
    status = ''in_flight'' or status = ''applied'' or status = ''failed'' or status = ''needs_reconcile''
    or status = ''indeterminate'' or status = ''skipped'')') where type = 'table' and name = 'mutation';
pragma writable_schema = reset;

create view account as
select t.*, (select p.chain from transition p where p.seq = t.seq - 1) as previous from transition t;

drop index run_one_open;
create unique index run_one_open on run (workflow_id)
  where status = 'active' or status = 'paused' or status = 'failed';

drop index mutation_one_open;
create unique index mutation_one_open on mutation (workflow_id)
  where status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate';

drop view item_standing;
create view item_standing as
select t.*,
  (select o.id from run o where o.workflow_id = t.workflow_id
    and (o.status = 'active' or o.status = 'paused' or o.status = 'failed')
    and exists (select 1 from item_run x join run r on r.id = x.run_id
      where x.workflow_id = t.workflow_id and x.item_id = t.id and r.lineage = o.lineage)) as held_by
from item t;
