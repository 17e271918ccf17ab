-- Who may come in by a proof of their own.

-- name: principal_add
-- An agent is added, or a person gets another proof; an agent of that name must not be here.
insert into principal (kind, name, role, secret, added_by, added_at) values (:kind, :name, :role, :secret, :actor, :now)
on conflict (kind, name) do update
set role = excluded.role, secret = excluded.secret, added_by = excluded.added_by, added_at = excluded.added_at,
  removed_by = null, removed_at = null
where principal.kind = 'person' or principal.removed_at is not null;

-- name: principal_remove
-- A principal is removed, and its proof is worth nothing any more.
update principal set secret = null, removed_by = :actor, removed_at = :now
where kind = :kind and name = :name and removed_at is null;

-- name: principal_get
-- One principal.
select * from principal where kind = :kind and name = :name;

-- name: principal_of_secret
-- Whose proof has this hash.
select kind, name, role from principal where secret = :secret;

-- name: principal_agents
-- Every agent, the newest last.
select name, role, added_by, added_at, removed_by, removed_at from principal where kind = 'agent' order by added_at, name;

-- name: principal_any_agent
-- Whether an agent is here.
select 1 as here from principal where kind = 'agent' and removed_at is null limit 1;
