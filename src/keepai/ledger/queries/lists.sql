-- Lists a page at a time: `page_…` oldest first, after a place; the others newest first, before a place. `floor` is the
-- first place that a page no longer searches.

-- name: page_inputs
-- Inputs with how they stand.
select * from input_standing
where workflow_id = :workflow_id and seq > :after
  and (:status is null or :status = case when waiting then 'pending'
    when status = 'skipped' or item_skipped then 'skipped' when late then 'late' else 'done' end)
order by seq limit :limit;

-- name: page_mutations
-- Mutations.
select * from mutation where workflow_id = :workflow_id and seq > :after order by seq limit :limit;

-- name: page_items
-- Items.
select * from item where workflow_id = :workflow_id and seq > :after and (:status is null or status = :status)
order by seq limit :limit;

-- name: page_runs
-- Runs.
select * from run where workflow_id = :workflow_id and seq > :after order by seq limit :limit;

-- name: page_events
-- Events of a topic or of all; "reserved" are those of the pending ones that a run has in hand.
select e.* from event_standing e
where e.workflow_id = :workflow_id and e.seq > :after and (:topic is null or e.topic = :topic)
  and (:status is null or e.status = :status or (:status = 'reserved' and e.reserved_by is not null))
order by e.seq limit :limit;

-- name: list_inputs_floor
-- The place of the input that lies `span` inputs before a place, if there are so many.
select seq, created_at from input where workflow_id = :workflow_id and seq < :before
order by seq desc limit 1 offset :span;

-- name: list_inputs
-- Inputs with how they stand; a text is looked for in every spelling of its letters that the caller gives.
select * from input_standing
where workflow_id = :workflow_id and seq < :before and seq > :floor
  and (:since is null or created_at >= :since)
  and (:text is null or instr(lower(title), lower(:text)) > 0 or instr(lower(title), lower(:upper)) > 0
    or instr(lower(title), :lower) > 0 or instr(lower(external_id), lower(:text)) > 0 or id = :text_id)
  and (:status is null or (:status = 'needs you' and needs_you) or :status = case when waiting then 'pending'
    when status = 'skipped' or item_skipped then 'skipped' when late then 'late' else 'done' end)
order by seq desc limit :limit;

-- name: list_mutations_floor
-- The place of the mutation that lies `span` mutations before a place, if there are so many.
select seq, created_at from mutation where workflow_id = :workflow_id and seq < :before
order by seq desc limit 1 offset :span;

-- name: list_mutations
-- Mutations; a text is looked for in what people read of them.
select * from mutation
where workflow_id = :workflow_id and seq < :before and seq > :floor
  and (:since is null or created_at >= :since)
  and (:text is null or instr(lower(preview), lower(:text)) > 0 or instr(lower(preview), lower(:upper)) > 0
    or instr(lower(preview), :lower) > 0 or instr(lower(title), lower(:text)) > 0
    or instr(lower(target), lower(:text)) > 0 or id = :text_id)
  and (:status is null or status = :status)
order by seq desc limit :limit;

-- name: count_inputs_of_mutation
-- How many inputs led to a mutation, counted up to a limit.
select count(*) as number from (select c.input_id from mutation m cross join reservation_cause c
  where m.id = :mutation_id and c.workflow_id = m.workflow_id and c.run_id = m.run_id
  union select t.input_id from mutation m join item t on t.id = m.item_id where m.id = :mutation_id limit :limit) x;

-- name: list_inputs_of_mutation
-- The inputs that led to a mutation, oldest first, after a place.
select i.* from (select c.input_id from mutation m cross join reservation_cause c
  where m.id = :mutation_id and c.workflow_id = m.workflow_id and c.run_id = m.run_id
  union select t.input_id from mutation m join item t on t.id = m.item_id where m.id = :mutation_id) x
cross join input_standing i where i.id = x.input_id and i.seq > :after
order by i.seq limit :limit;

-- name: list_events_floor
-- The place of the event that lies `span` events before a place, if there are so many.
select seq, created_at from event where workflow_id = :workflow_id and seq < :before
order by seq desc limit 1 offset :span;

-- name: list_events
-- Events of a topic or of all; "reserved" are those of the pending ones that a run has in hand.
select e.* from event_standing e
where e.workflow_id = :workflow_id and e.seq < :before and e.seq >= :floor
  and (:since is null or e.created_at >= :since) and (:topic is null or e.topic = :topic)
  and (:text is null or instr(lower(e.message_id), lower(:text)) > 0 or instr(lower(e.message_id), lower(:upper)) > 0
    or instr(lower(e.message_id), :lower) > 0 or instr(lower(e.payload), lower(:text)) > 0 or e.id = :text_id)
  and (:status is null or (:status = 'reserved' and e.reserved_by is not null)
    or (e.status = :status and e.reserved_by is null))
order by e.seq desc limit :limit;

-- name: list_events_pending
-- The same for what waits: the few of them are found wherever they lie in a long list.
select e.* from event_standing e where e.workflow_id = :workflow_id and e.seq in (select p.seq from event p
  where p.workflow_id = :workflow_id and p.status = 'pending' and p.seq < :before
    and (:since is null or p.created_at >= :since) and (:topic is null or p.topic = :topic)
    and (:text is null or instr(lower(p.message_id), lower(:text)) > 0 or instr(lower(p.message_id), lower(:upper)) > 0
      or instr(lower(p.message_id), :lower) > 0 or instr(lower(p.payload), lower(:text)) > 0 or p.id = :text_id)
    and (:status = 'reserved') = (p.reserved_by is not null)
  order by p.seq desc limit :limit)
order by e.seq desc;

-- name: list_items_floor
-- The place of the item that lies `span` items before a place, if there are so many.
select seq, created_at from item where workflow_id = :workflow_id and seq < :before
order by seq desc limit 1 offset :span;

-- name: list_items
-- Items; a text is looked for in their titles and in the script's names for them.
select * from item
where workflow_id = :workflow_id and seq < :before and seq >= :floor
  and (:since is null or created_at >= :since)
  and (:text is null or instr(lower(title), lower(:text)) > 0 or instr(lower(title), lower(:upper)) > 0
    or instr(lower(title), :lower) > 0 or instr(lower(external_id), lower(:text)) > 0 or id = :text_id)
  and (:status is null or status = :status)
order by seq desc limit :limit;

-- name: list_runs_floor
-- The place of the run that lies `span` runs before a place, if there are so many.
select seq, created_at from run where workflow_id = :workflow_id and seq < :before
order by seq desc limit 1 offset :span;

-- name: list_runs
-- Runs; a text is looked for in what they selected and in why they stopped.
select * from run
where workflow_id = :workflow_id and seq < :before and seq >= :floor
  and (:since is null or created_at >= :since)
  and (:text is null or instr(lower(prepare_result), lower(:text)) > 0
    or instr(lower(prepare_result), lower(:upper)) > 0 or instr(lower(prepare_result), :lower) > 0
    or instr(lower(error), lower(:text)) > 0 or instr(lower(error), lower(:upper)) > 0
    or instr(lower(error), :lower) > 0 or id = :text_id)
  and (:status is null or status = :status) and (:handler is null or handler = :handler)
order by seq desc limit :limit;

-- name: list_handlers
-- The handlers that a workflow has or had.
select handler from handler_state where workflow_id = :workflow_id order by handler;
