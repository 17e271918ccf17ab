-- pre: What every run writes lies on fewer pages. The account is found by its subject first, and ids sort by time; one
-- index has the pending events of a topic in their order, whether a run has pinned them or not.

drop index event_waiting;
drop index event_pending;
create index event_pending on event (workflow_id, topic, seq) where status = 'pending';

drop index transition_by_subject;
create index transition_by_subject on transition (subject, workflow_id);
