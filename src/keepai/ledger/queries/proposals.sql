-- Statements on proposals: scripts that wait for a person.

-- name: proposal_insert
-- Somebody proposes a script.
insert into proposal (id, workflow_id, name, status, proposer, source, cases, wanted, why, work, facts, digest,
  expires_at, created_at, updated_at)
values (:proposal_id, :workflow_id, :name, :status, :proposer, :source, :cases, :wanted, :why, :work, :facts, :digest,
  :expires_at, :now, :now);

-- name: proposal_by_id
-- One proposal.
select * from proposal where id = :proposal_id;

-- name: proposal_waiting
-- Every proposal that waits, the oldest first.
select * from proposal where status = 'waiting' order by id;

-- name: look_proposals_waiting
-- The same without their long texts: every look at what waits for a person reads them.
select id, workflow_id, name, status, proposer, '' as source, null as cases, wanted, why, null as work, facts, digest,
  note, expires_at, created_at, updated_at from proposal where status = 'waiting' order by id;

-- name: proposal_newest
-- Proposals of one workflow or of all, the newest first.
select * from proposal where :name is null or name = :name order by id desc limit :limit;

-- name: look_proposals
-- Proposals of a workflow that is there, the newest first.
select * from proposal where workflow_id = :workflow_id order by id desc limit :limit;

-- name: proposal_move
-- How a proposal ended, if it still waits as it was shown.
update proposal set status = :target, note = :note, updated_at = :now
where id = :proposal_id and status = 'waiting' and digest = :digest returning workflow_id;

-- name: proposal_renew
-- What the host finds out about a waiting proposal is no longer what it was.
update proposal set facts = :facts, digest = :digest, updated_at = :now
where id = :proposal_id and status = 'waiting' returning workflow_id;

-- name: proposal_supersede
-- Whatever waits for this workflow, or what this proposer has proposed for it, is overtaken.
update proposal set status = 'superseded', note = :note, updated_at = :now
where name = :name and status = 'waiting' and (:proposer is null or proposer = :proposer) returning id, workflow_id;

-- name: proposal_expire
-- Nobody decided in time.
update proposal set status = 'expired', note = 'nobody decided in time', updated_at = :now
where status = 'waiting' and expires_at <= :now returning id, workflow_id;
