-- Statements on the items that routines work through.

-- name: item_find
-- An item by the name that its script gave it.
select * from item where workflow_id = :workflow_id and external_id = :external_id;

-- name: item_by_id
-- One item.
select * from item where id = :item_id;

-- name: item_insert
-- An item that a routine begins for the first time.
insert into item (workflow_id, seq, id, external_id, title, status, begun, input_id, handler, created_at, updated_at)
values (:workflow_id, :seq, :item_id, :external_id, :title, 'processing', :seq, :input_id, :handler, :now, :now);

-- name: item_enter
-- A run works on an item, in the item's present attempt; coming back to it makes it the run's newest again.
insert into item_run (workflow_id, run_id, item_id, seq, attempt)
select i.workflow_id, :run_id, i.id, :seq, i.attempt from item i where i.id = :item_id
on conflict (workflow_id, run_id, item_id) do update set seq = excluded.seq, attempt = excluded.attempt;

-- name: item_attempt_begun
-- The first run of the lineage in which this attempt of an item was begun.
select f.id, f.created_at from item_run x
  join run r on r.id = x.run_id join run f on f.id = r.lineage
where x.workflow_id = :workflow_id and x.item_id = :item_id and x.attempt = :attempt order by r.seq limit 1;

-- name: item_at_work
-- The item that a run works on, unchanged since it began with it.
select i.id, i.workflow_id, i.status from item_run x join item i on i.id = x.item_id and i.attempt = x.attempt
where x.workflow_id = :workflow_id and x.run_id = :run_id and x.item_id = :item_id
  and i.status in ('processing', 'failed', 'needs_attention');

-- name: item_of_run
-- The item that a run worked on last, as it stands now.
select i.*, x.attempt as worked_attempt from item_run x join item i on i.id = x.item_id
where x.workflow_id = :workflow_id and x.run_id = :run_id order by x.seq desc limit 1;

-- name: item_move
-- An item goes from one state to another.
update item set status = :target, updated_at = :now where id = :item_id and status = :source;

-- name: item_left
-- What a lineage that has ended began and did not finish.
select distinct i.id, i.workflow_id, i.status from run r cross join item_run x cross join item i
where (r.id = :lineage or (r.lineage = :lineage and r.retry_of is not null))
  and +r.workflow_id = :workflow_id and x.workflow_id = r.workflow_id and x.run_id = r.id
  and i.id = x.item_id and i.status in ('processing', 'needs_attention') and not exists (
    select 1 from run h where h.item_id = i.id and h.parked <> 0 and h.lineage <> :lineage);

-- name: item_passed_over
-- Items that waited for a routine when it began, and to which it did not come though it went through its whole list;
-- what a parked run carries on was not for it to come to.
select i.id, i.workflow_id, i.status from item i
where i.workflow_id = :workflow_id and i.status in ('processing', 'failed', 'needs_attention')
  and i.status = 'processing' and i.handler = :handler and i.begun < :seq and not exists (
    select 1 from run h where h.item_id = i.id and h.parked <> 0);

-- name: item_reprocess
-- A person has a finished item worked on once more.
update item set status = 'processing', attempt = attempt + 1, begun = :seq, updated_at = :now
where id = :item_id and status in ('done', 'skipped', 'failed') returning handler;

-- name: item_held
-- An item that an open run, or the run that it carries on from, has in hand.
select held_by from item_standing where id = :item_id and held_by is not null;

-- name: item_of_input
-- The item that an input stands for, if it does.
select * from item where input_id = :input_id;

-- name: item_open
-- Items of a workflow that were begun and are not finished, with the open run that has each in hand.
select * from item_standing where workflow_id = :workflow_id and status in ('processing', 'failed', 'needs_attention')
order by seq limit :limit;

-- name: item_open_count
-- How many they are.
select count(*) as unfinished from item
where workflow_id = :workflow_id and status in ('processing', 'failed', 'needs_attention');
