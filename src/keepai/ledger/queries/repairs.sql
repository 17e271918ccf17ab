-- Statements on repairs: tries to mend a script that failed.

-- name: repair_insert
-- A try begins; one per failed run.
insert into repair (workflow_id, seq, id, run_id, lineage, status, created_at, updated_at)
values (:workflow_id, :seq, :repair_id, :run_id, :lineage, :status, :now, :now);

-- name: repair_of_run
-- The newest try that a failed run led to.
select * from repair where run_id = :run_id order by seq desc limit 1;

-- name: repair_by_id
-- One try.
select * from repair where id = :repair_id;

-- name: repair_waiting
-- Repairs that wait for a person.
select * from repair where status = 'waiting' order by id;

-- name: repair_count
-- How many tries a lineage has had.
select count(*) as tries from repair where workflow_id = :workflow_id and lineage = :lineage;

-- name: repair_move
-- What became of a try.
update repair set status = :target, source = coalesce(:source, source), impact = coalesce(:impact, impact), note = :note,
  trial = coalesce(:trial, trial), updated_at = :now
where id = :repair_id and status = :before returning workflow_id;

-- name: repair_void
-- The run that a waiting repair was meant for has gone on without it.
update repair set status = 'refused', note = 'the run went on without it', updated_at = :now
where run_id = :run_id and status = 'waiting' returning id, note;

-- name: repair_orphaned
-- Tries whose host died while the hook had the evidence.
select id, workflow_id from repair where status = 'asked';
