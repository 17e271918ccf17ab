-- What every run writes is less, and lies on fewer pages. The account is found by its subject first, and ids sort by time;
-- one index has the pending events of a topic in their order, whether a run has pinned them or not. What a commit appends
-- to the account has one hash, in a seal, instead of one for each row; the first seal goes on from the last row's.

drop index event_waiting;
drop index event_pending;
create index event_pending on event (workflow_id, topic, seq) where status = 'pending';

drop index transition_by_subject;
create index transition_by_subject on transition (subject, workflow_id);

drop view account;
create table seal (
  last integer primary key,
  chain text not null
);
insert into seal (last, chain) select seq, coalesce(chain, '') from transition order by seq desc limit 1;
