create table channel (
  name text not null primary key,
  attempts integer not null default 0,
  tried_at integer,
  retry_at integer,
  told_at integer,
  failing_since_at integer,
  error text,
  digest_at integer
) without rowid;

create table notice (
  channel text not null references channel (name) on delete cascade,
  question text not null,
  mark text not null,
  told_at integer not null,
  times integer not null,
  primary key (channel, question)
) without rowid;
