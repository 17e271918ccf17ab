-- What happened in a span of time, told from the account. Its numbers grow with time, so that only its end is looked at.

-- name: digest_at
-- When a row of the account was written, or the first one after that number.
select at from transition where seq >= :seq order by seq limit 1;

-- name: digest_counts
-- How often what happened, in each workflow.
select workflow_id, machine, target, count(*) as number from transition
where seq >= :first and at >= :since and at < :until and (
  (machine = 'input' and source is null) or (machine = 'mutation' and target in ('applied', 'failed', 'skipped'))
  or (machine = 'status' and target = 'failed'))
group by workflow_id, machine, target;

-- name: digest_inputs
-- The newest inputs that came in.
select i.id, i.title as line from transition t join input i on i.id = t.subject
where t.seq >= :first and t.at >= :since and t.at < :until and t.workflow_id = :workflow_id and t.machine = 'input'
  and t.source is null
order by t.seq desc limit :limit;

-- name: digest_mutations
-- The newest side effects that came to an end in one way.
select m.id, m.preview as line from transition t join mutation m on m.id = t.subject
where t.seq >= :first and t.at >= :since and t.at < :until and t.workflow_id = :workflow_id
  and t.machine = 'mutation' and t.target = :target
order by t.seq desc limit :limit;

-- name: digest_runs
-- The newest runs that failed.
select r.id, r.handler, r.error from transition t join run r on r.id = t.subject
where t.seq >= :first and t.at >= :since and t.at < :until and t.workflow_id = :workflow_id
  and t.machine = 'status' and t.target = 'failed'
order by t.seq desc limit :limit;
