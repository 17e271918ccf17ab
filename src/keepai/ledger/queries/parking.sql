-- Statements on runs that are parked, and on what they keep others from.

-- name: parked_insert
-- A run is parked, with what it holds. Its place is that of its lineage.
insert into parked (workflow_id, run_id, turn, handler, writes, connector, account, target, parked_at)
select :workflow_id, :run_id, r.seq, :handler, :writes, :connector, :account, :target, :now
from run r where r.id = :lineage;

-- name: parked_delete
-- A run is parked no longer.
delete from parked where workflow_id = :workflow_id and run_id = :run_id;

-- name: parked_hand_over
-- A run carries on from a parked one: it is parked in its place.
update parked set run_id = :new_run_id where workflow_id = :workflow_id and run_id = :run_id;

-- name: parked_runs
-- The parked runs of a workflow in the order of their places.
select r.* from parked p cross join run r
where p.workflow_id = :workflow_id and r.id = p.run_id order by p.turn;

-- name: parked_all
-- What the parked runs of a workflow hold, in the order of their places.
select p.*, r.handler as stopped_in, r.status, r.reason, (select i.title from item i where i.id = r.item_id) as item,
  (select count(*) from event e where e.workflow_id = p.workflow_id and e.held_by = p.run_id) as events,
  (select count(*) from reservation v where v.workflow_id = p.workflow_id and v.run_id = p.run_id) as reserved
from parked p cross join run r
where p.workflow_id = :workflow_id and r.id = p.run_id order by p.turn;

-- name: parked_handlers
-- The handlers that parked runs of a workflow hold.
select distinct handler from parked where workflow_id = :workflow_id and handler is not null;

-- name: parked_handler
-- A parked run that holds a handler.
select run_id from parked where workflow_id = :workflow_id and handler = :handler order by turn limit 1;

-- name: parked_before
-- A parked run that must be done before another run of the workflow may write to a target: one that may write there
-- and whose lineage began earlier, or whose call to it has no known outcome.
select p.run_id from parked p
where p.workflow_id = :workflow_id and p.run_id <> :run_id
  and (p.writes = 'anything' or (p.connector = :connector and (
    p.writes = 'connector' or (p.writes = 'target' and p.account = :account and p.target = :target))))
  and (p.turn < (select r.seq from run r where r.id = :lineage) or exists (
    select 1 from mutation m where m.workflow_id = p.workflow_id and m.run_id = p.run_id
      and (m.status = 'in_flight' or m.status = 'needs_reconcile' or m.status = 'indeterminate')))
order by p.turn limit 1;

-- name: run_park
-- A stopped run lets others of its workflow go on. When it stopped stays as it is: a clock set back is known by that.
update run set parked = seq
where id = :run_id and parked = 0 and status = :status and (status = 'paused' or status = 'failed');

-- name: run_part
-- A parked run of a routine carries on one item, with the state that its handler has now; other runs do the rest.
update run set item_id = :item_id, prepare_result = h.state, bytes = bytes + coalesce(octet_length(h.state), 0)
from handler_state h where run.id = :run_id and run.item_id is null and run.phase = 'executing'
  and h.workflow_id = run.workflow_id and h.handler = run.handler;

-- name: handler_rest
-- A routine goes on at once, without an item that is parked.
update handler_state set queued = 3, updated_at = :now
where workflow_id = :workflow_id and handler = :handler and present = 1 and queued = 0;

-- name: parked_with_item
-- A parked run that carries on an item.
select id from run where item_id = :item_id and parked <> 0 and id <> :run_id limit 1;

-- name: run_unpark
-- A parked run is the one that holds its workflow again.
update run set parked = 0 where id = :run_id and parked <> 0;

-- name: mutation_park
-- The call of a parked run whose outcome is unknown is not in the way of others.
update mutation set parked = seq
where workflow_id = :workflow_id and run_id = :run_id
  and (status = 'in_flight' or status = 'needs_reconcile' or status = 'indeterminate');

-- name: mutation_unpark
-- It is the one open call of its workflow again.
update mutation set parked = 0 where workflow_id = :workflow_id and run_id = :run_id and parked <> 0;

-- name: workflow_parked
-- So many more of its runs are parked.
update workflow set parked = parked + :count where id = :workflow_id;

-- name: workflow_set_waiting
-- What else of a workflow goes on while a run of it waits. What keep.toml says never takes the place of what a person said.
update workflow set waiting = :waiting, waiting_configured = :configured, updated_at = :now
where id = :workflow_id and (:configured = 0 or waiting_configured = 1);

-- name: event_hold
-- Free events that share an input with what a parked run has reserved, or that it has just let go of, wait for that run.
update event set held_by = h.run_id, updated_at = :now from (
  select x.event_id, min(x.run_id) as run_id from (
    select c.event_id, v.run_id from parked_cause v cross join event_cause c cross join event e
    where v.workflow_id = :workflow_id and c.workflow_id = v.workflow_id and c.input_id = v.input_id
      and e.id = c.event_id and e.attempt = c.attempt
      and e.status = 'pending' and e.reserved_by is null and e.held_by is null
    union all
    select e.id, v.run_id from parked_reservation v cross join event e
    where v.workflow_id = :workflow_id and e.id = v.event_id and e.attempt = v.attempt
      and e.status = 'pending' and e.reserved_by is null and e.held_by is null) x
  group by x.event_id) h
where event.id = h.event_id;

-- name: event_unhold
-- No event waits for a parked run.
update event set held_by = null, updated_at = :now where workflow_id = :workflow_id and held_by is not null;

-- name: topic_touch_all
-- Every consumer has something to look at: what a parked run held may be free.
update topic set touched = :sequence where workflow_id = :workflow_id and subscriber is not null;
