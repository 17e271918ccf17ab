-- Who was told what, by which channel, and how the channels do. A channel's row is written before a message leaves and
-- after: where only the first happened, nobody knows whether the message arrived.

-- name: channel_add
-- A channel that keep.toml names, if it is new.
insert into channel (name) values (:name) on conflict (name) do nothing;

-- name: channel_all
-- Every channel and how it does.
select * from channel order by name;

-- name: channel_get
-- One channel.
select * from channel where name = :name;

-- name: channel_remove
-- Forget a channel that keep.toml no longer names, with what was told by it.
delete from channel where name = :name;

-- name: channel_digests
-- From when on a channel's next digest tells; null if it gets none.
update channel set digest_at = :digest_at where name = :name;

-- name: channel_retry_now
-- Have a channel that failed tried at once. One of which nobody knows waits its time: it may have told.
update channel set retry_at = null where name = :name and error is not null;

-- name: channel_begin
-- A message is about to leave, unless another host has just sent one.
update channel set attempts = attempts + 1, tried_at = :now, retry_at = :retry_at, error = null
where name = :name and attempts = :attempts and coalesce(tried_at, 0) = :tried_at;

-- name: channel_told
-- A message was taken, perhaps not by everybody.
update channel set attempts = 0, retry_at = null, told_at = :now, error = :remark,
  failing_since_at = case when :remark is not null then coalesce(failing_since_at, :now) end
where name = :name;

-- name: channel_failed
-- A message was not taken.
update channel set retry_at = :retry_at, error = :error, failing_since_at = coalesce(failing_since_at, :now)
where name = :name;

-- name: notice_all
-- What was told by any channel.
select * from notice order by channel, question;

-- name: notice_of_channel
-- What was told by one channel.
select * from notice where channel = :channel;

-- name: notice_set
-- A question was told, for the first time or again.
insert into notice (channel, question, mark, told_at, times) values (:channel, :question, :mark, :now, 1)
on conflict (channel, question) do update set
  times = case when notice.mark = excluded.mark then notice.times + 1 else 1 end, mark = excluded.mark, told_at = excluded.told_at;

-- name: notice_forget
-- A question was answered: should it come again, it is told again.
delete from notice where question = :question;
