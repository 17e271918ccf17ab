-- What runs have touched: the blast radius of a script version, or of a span of time.

-- name: blast_touched
-- The runs of a version, or that began in a span of time, and the inputs, items and mutations that they touched:
-- the first of each kind, and how many there are. A workflow has one open run at a time and one sequence for all,
-- so what a run created lies between its own number and that of the run after it: the primary keys find it.
with chosen as (
  select r.id, r.seq, coalesce((select min(n.seq) from run n
    where n.workflow_id = r.workflow_id and n.seq > r.seq), 9223372036854775807) as end_seq
  from run r where r.workflow_id = :workflow_id
    and (:major is null or (r.major = :major and r.minor = :minor))
    and (:since_at is null or r.created_at >= :since_at) and (:until_at is null or r.created_at < :until_at)
), worked as (
  select t.id, t.seq, t.input_id from chosen r cross join item_run x cross join item t
  where x.workflow_id = :workflow_id and x.run_id = r.id and t.id = x.item_id
), reached as (
  select c.input_id from chosen r cross join reservation_cause c where c.workflow_id = :workflow_id and c.run_id = r.id
  union select i.id from chosen r cross join input i
  where i.workflow_id = :workflow_id and i.seq > r.seq and i.seq < r.end_seq and i.created_by = r.id
  union select c.input_id from chosen r cross join event e cross join event_cause c
  where e.workflow_id = :workflow_id and e.seq > r.seq and e.seq < r.end_seq and e.created_by = r.id
    and c.workflow_id = :workflow_id and c.event_id = e.id and c.attempt = 1 and c.revision = 1
  union select h.input_id from event_revision v cross join held_cause h
  where v.workflow_id = :workflow_id and v.created_by in (select r.id from chosen r)
    and h.workflow_id = :workflow_id and h.event_id = v.event_id and h.revision = v.revision
  union select c.input_id from event_revision v cross join event_cause c
  where v.workflow_id = :workflow_id and v.created_by in (select r.id from chosen r)
    and c.workflow_id = :workflow_id and c.event_id = v.event_id and c.revision = v.revision
  union select w.input_id from worked w
), touched as (
  select 'run' as kind, r.id, r.seq from chosen r
  union select 'input', i.id, i.seq from input i where i.id in (select p.input_id from reached p)
  union select 'item', w.id, w.seq from worked w
  union select 'mutation', m.id, m.seq from chosen r cross join mutation m
  where m.workflow_id = :workflow_id and m.run_id = r.id
)
select kind, id, total from (
  select kind, id, seq, count(*) over (partition by kind) as total,
    row_number() over (partition by kind order by seq) as place from touched
) as counted where place <= :limit order by kind, seq;
