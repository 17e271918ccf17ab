-- Who may come in by a proof of their own.

-- name: principal_add
-- An agent or a user is added; nobody of that kind and name may be here.
insert into principal (kind, name, role, secret, added_by, added_at) values (:kind, :name, :role, :secret, :actor, :now)
on conflict (kind, name) do update
set role = excluded.role, secret = excluded.secret, added_by = excluded.added_by, added_at = excluded.added_at,
  removed_by = null, removed_at = null
where principal.removed_at is not null;

-- name: principal_pin
-- Whoever types at the terminal gets a PIN, or another one; their name is empty.
insert into principal (kind, name, role, secret, added_by, added_at) values (:kind, :name, :role, :secret, :actor, :now)
on conflict (kind, name) do update
set secret = excluded.secret, added_by = excluded.added_by, added_at = excluded.added_at;

-- name: principal_remove
-- A principal is removed, and its proof is worth nothing any more.
update principal set secret = null, removed_by = :actor, removed_at = :now
where kind = :kind and name = :name and name <> '' and removed_at is null;

-- name: principal_get
-- One principal.
select * from principal where kind = :kind and name = :name;

-- name: principal_of_secret
-- Whose proof has this hash.
select kind, name, role from principal where secret = :secret;

-- name: principal_all
-- Every agent, or every user, the newest last. The PIN is nobody's.
select name, role, added_by, added_at, removed_by, removed_at from principal
where kind = :kind and name <> '' order by added_at, name;

-- name: principal_any_agent
-- Whether an agent is here.
select 1 as here from principal where kind = 'agent' and removed_at is null limit 1;
