-- Statements on what limits count: what was sent, and what is under way. Only calls that are under a limit need them.

-- name: limit_sent_by_workflow
-- When the n-th newest mutation of a workflow in a stretch of time was sent.
select first_sent_at from mutation
where workflow_id = :workflow_id and first_sent_at > :since and first_sent_at <= :until
order by first_sent_at desc limit 1 offset :newer;

-- name: limit_sent_by_connector
-- The same of a connection, over all workflows.
select m.first_sent_at from workflow w cross join mutation m
where m.workflow_id = w.id and m.first_sent_at > :since and m.first_sent_at <= :until and m.connector = :connector
order by m.first_sent_at desc limit 1 offset :newer;

-- name: limit_under_way
-- The calls of a connection that may still go on, over all workflows: also one that was given up and has not ended.
select count(*) as number, min(id) as mutation_id from mutation
where (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate')
  and (status = 'in_flight' or closed_at is null) and connector = :connector;
