-- Statements on approvals: calls that wait for a person.

-- name: approval_insert
-- A call is held until a person has seen exactly it.
insert into approval (workflow_id, seq, id, run_id, capability, account, because, intent, digest, status, expires_at,
  created_at, updated_at)
values (:workflow_id, :seq, :approval_id, :run_id, :capability, :account, :because, :intent, :digest, 'pending',
  :expires_at, :now, :now);

-- name: approval_by_id
-- One approval.
select * from approval where id = :approval_id;

-- name: approval_open
-- The approval that a run waits for or may use.
select * from approval where run_id = :run_id and status in ('pending', 'approved');

-- name: approval_all
-- Every approval of a workflow, oldest first.
select * from approval where workflow_id = :workflow_id order by seq;

-- name: approval_move
-- A person decided, time ran out, or the call was recorded.
update approval set status = :target, decided_by = coalesce(:decided_by, decided_by), updated_at = :now
where id = :approval_id and status = :source;

-- name: run_expect_by
-- Until when a run waits for a person before it asks again.
update run set retry_at = :retry_at, updated_at = :now
where id = :run_id and status = 'paused' and reason = 'approval';
