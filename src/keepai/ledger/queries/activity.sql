-- What happened lately in all workflows: rows from an id on, because the ids of a kind sort by time. The inner limit is a
-- bound, and it also keeps SQLite from going through a whole index by workflow.

-- name: activity_inputs
-- How much came in, by workflow and step of time.
select workflow_id, step, count(*) as number from (
  select workflow_id, created_at / :step_ms as step from input where id >= :first_id limit :limit) x
group by workflow_id, step;

-- name: activity_outputs
-- How much was sent, by workflow and step of time.
select workflow_id, step, count(*) as number from (
  select workflow_id, created_at / :step_ms as step from mutation where id >= :first_id limit :limit) x
group by workflow_id, step;

-- name: activity_runs
-- How many runs began, by workflow, step of time and how long those took that are done (their class, 0 for the shortest),
-- and how many of them stopped at an error or with their host.
select workflow_id, step, took, count(*) as number, sum(fault) as failed from (
  select workflow_id, created_at / :step_ms as step, case when status <> 'committed' then null
      when updated_at - created_at < 100 then 0 when updated_at - created_at < 1000 then 1
      when updated_at - created_at < 10000 then 2 when updated_at - created_at < 60000 then 3 else 4 end as took,
    case when status = 'failed' or status = 'crashed'
      or status = 'superseded' or (status = 'paused' and reason = 'transient') then 1 else 0 end as fault
  from run where id >= :first_id limit :limit) x
group by workflow_id, step, took;

-- name: activity_acts
-- What people did, of the newest acts: how often, by workflow, step of time and act.
select workflow_id, step, act, count(*) as number from (
  select workflow_id, at / :step_ms as step, act from action
  where seq > (select max(seq) from action) - :limit and workflow_id is not null and at >= :since_at) x
group by workflow_id, step, act;

-- name: newest_inputs
-- Inputs of all workflows with how they stand, newest first, before an id.
select * from input_standing
where id < :last_id and id > :first_id and (:since is null or created_at >= :since)
  and (:text is null or instr(lower(title), lower(:text)) > 0 or instr(lower(title), lower(:upper)) > 0
    or instr(lower(title), :lower) > 0 or instr(lower(external_id), lower(:text)) > 0 or id = :text_id)
  and (:status is null or (:status = 'needs you' and needs_you) or :status = case when waiting then 'pending'
    when status = 'skipped' or item_skipped then 'skipped' when late then 'late' else 'done' end)
order by id desc limit :limit;

-- name: newest_inputs_floor
-- The input that lies `span` inputs before an id, if there are so many.
select id, created_at from input where id < :last_id order by id desc limit 1 offset :span;

-- name: newest_mutations
-- Mutations of all workflows, newest first, before an id.
select * from mutation
where id < :last_id and id > :first_id and (:since is null or created_at >= :since)
  and (:text is null or instr(lower(preview), lower(:text)) > 0 or instr(lower(preview), lower(:upper)) > 0
    or instr(lower(preview), :lower) > 0 or instr(lower(title), lower(:text)) > 0
    or instr(lower(target), lower(:text)) > 0 or id = :text_id)
  and (:status is null or status = :status)
order by id desc limit :limit;

-- name: newest_mutations_floor
-- The mutation that lies `span` mutations before an id, if there are so many.
select id, created_at from mutation where id < :last_id order by id desc limit 1 offset :span;

-- name: newest_runs
-- Runs of all workflows, newest first, before an id.
select * from run
where id < :last_id and id > :first_id and (:since is null or created_at >= :since)
  and (:text is null or instr(lower(prepare_result), lower(:text)) > 0
    or instr(lower(prepare_result), lower(:upper)) > 0 or instr(lower(prepare_result), :lower) > 0
    or instr(lower(error), lower(:text)) > 0 or instr(lower(error), lower(:upper)) > 0
    or instr(lower(error), :lower) > 0 or id = :text_id)
  and (:status is null or status = :status)
order by id desc limit :limit;

-- name: newest_runs_floor
-- The run that lies `span` runs before an id, if there are so many.
select id, created_at from run where id < :last_id order by id desc limit 1 offset :span;
