"""What `keep doctor` says of a ledger in PostgreSQL: the server, the way to it, and whether it keeps what it commits.

It changes nothing. Each fact is a sentence with what to do; which numbers are good is decided here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import psycopg

from ...model.clock import Clock
from ...model.errors import KeepError, LedgerUnusable
from ...model.records import Record
from .connection import OLDEST, connect, shown, unusable
from .tables import SCHEMA, Connection, known, lacks, needed, number, older_hosts, refuse_newer

#: How many connections one host opens at most: writers, one that looks, one for the lease, webhooks, a page's looks.
CONNECTIONS_PER_HOST = 12

_TRIPS = 5  # of which the median is told
_TRIP_MS_WARN = 5.0
_CLOCK_MS_WARN = 2_000
_LOCAL = ("", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServerFact(Record):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "warn", "fail"]
    said: str
    do: str = ""


def examine(url: str, clock: Clock) -> list[ServerFact]:
    """Everything that can be seen from here, as far as it goes."""
    try:
        connection = connect(url)  # refuses a server that a host refuses too
    except KeepError as error:
        return [ServerFact("PostgreSQL", "fail", error.message)]
    found: list[ServerFact] = []
    try:
        for check in _CHECKS:
            found += check(connection, url, clock)
    except psycopg.Error as error:
        found.append(ServerFact("PostgreSQL", "fail", unusable(error, url).message))
    finally:
        connection.close()
    return found


def _one(connection: Connection, text: str, *values: Any) -> tuple[Any, ...]:
    row = connection.execute(text, values or None).fetchone()
    assert row is not None
    return row


def _server(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    [version] = _one(connection, "select current_setting('server_version')")
    yield ServerFact("PostgreSQL", "ok", (
        f"{version} at {shown(url)}, a primary that syncs what it commits (fsync, full_page_writes and "
        f"synchronous_commit are on, the encoding is UTF8; {OLDEST} or newer is needed)"))
    checksums, vacuums = _one(
        connection, "select current_setting('data_checksums'), current_setting('autovacuum')")
    if checksums == "off":
        yield ServerFact("data_checksums", "warn", "off: a damaged page of the disk is not noticed.",
                         "Stop the server and run pg_checksums --enable.")
    if vacuums == "off":
        yield ServerFact("autovacuum", "warn", "off: the tables grow and get slower.", "Set autovacuum = on.")


def _standby(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    names, commits = _one(connection, "select current_setting('synchronous_standby_names'), "
                                      "current_setting('synchronous_commit')")
    if names:
        yield ServerFact("standby", "ok", f"commits wait for a standby (synchronous_standby_names = {names}, "
                                          f"synchronous_commit = {commits})")
    else:
        yield ServerFact(
            "standby", "warn", "no synchronous standby is named: if this server is lost, so are its newest commits.",
            "If there is a standby that can take over, name it in synchronous_standby_names. If there is none, nothing "
            "is to be done: what is on this server's disk counts.")


def _rights(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    user, may_make, superuser = _one(
        connection, "select current_user::text, has_database_privilege(current_database(), 'create'), "
                    "(select rolsuper from pg_roles where rolname = current_user)")
    owner = connection.execute(
        "select r.rolname::text, pg_has_role(current_user, n.nspowner, 'usage') from pg_namespace n "
        "join pg_roles r on r.oid = n.nspowner where n.nspname = %s", [SCHEMA]).fetchone()
    if owner is not None and not owner[1]:
        yield ServerFact("rights", "fail", f"the schema {SCHEMA} belongs to {owner[0]}, and this user is {user}.",
                         f"Connect as {owner[0]}, or: grant {owner[0]} to {user}.")
    elif owner is None and not may_make:
        yield ServerFact("rights", "fail", f"{user} may not make a schema in this database.",
                         f"Say to the database: create schema {SCHEMA} authorization {user}.")
    elif superuser:
        yield ServerFact("rights", "warn", f"{user} is a superuser, and Keep needs only a schema of its own.",
                         "Make a user for it that owns the database; docs/operating/postgres.md says how.")
    else:
        yield ServerFact("rights", "ok", f"{user} owns the schema {SCHEMA}, or may make it")


def _encryption(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    row = connection.execute("select ssl, version from pg_stat_ssl where pid = pg_backend_pid()").fetchone()
    [address] = _one(connection, "select coalesce(host(inet_client_addr()), '')")
    mode = connection.info.get_parameters().get("sslmode", "prefer")
    if row is None or not row[0]:
        if address in _LOCAL:
            yield ServerFact("TLS", "ok", "none, and the server is on this machine")
        else:
            yield ServerFact("TLS", "warn", "none: whoever is on the way can read and change everything.",
                             "Add ?sslmode=verify-full to the address.")
    elif mode == "verify-full":
        yield ServerFact("TLS", "ok", f"{row[1]}, and the server is who it says")
    else:
        yield ServerFact("TLS", "warn", f"{row[1]}, but sslmode is {mode}: another server could answer instead.",
                         "Add ?sslmode=verify-full to the address.")


def _pooler(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    """Ask twice which process of the server answers, the second time while another client has a transaction open."""
    before = _backend(connection)
    with connect(url) as other:
        other.execute("begin")
        between = _backend(other)
        after = _backend(connection)
        other.execute("rollback")
    yield told_of_backends(connection.info.backend_pid, before, between, after)


def _backend(connection: Connection) -> int:
    return int(_one(connection, "select pg_backend_pid()")[0])


def told_of_backends(announced: int, before: int, between: int, after: int) -> ServerFact:
    """Whether there is a pooler on the way: which process of the server was announced, and which ones answered."""
    if before != after or between in (before, after):
        return ServerFact(
            "pooler", "fail", "there is one on the way that gives a client another connection for each transaction: "
            "statements that were prepared, the lease and what hosts tell each other get lost.",
            "Use session pooling for Keep, or the address of the server itself.")
    if announced != before:
        return ServerFact("pooler", "ok", "there is one on the way, which keeps one connection for one client")
    return ServerFact("pooler", "ok", "none on the way")


def _ledger(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    have, want = number(connection), known()
    if have is None:
        yield ServerFact("schema", "ok", f"the database has no ledger yet; the first host makes one (schema {want})")
        return
    try:
        refuse_newer(needed(connection), shown(url))
    except LedgerUnusable as error:
        yield ServerFact("schema", "fail", error.message)
        return
    if have < want and (older := older_hosts(connection, want)) and not lacks(have):
        yield ServerFact("schema", "ok", f"{have}; {want} comes when no older host is left, and there is {older[0]}")
    elif have < want:
        yield ServerFact("schema", "warn", f"{have}, and this Keep has {want}.", "The next host brings it up to date.")
    elif have > want:
        yield ServerFact("schema", "ok", f"{have}, to which a newer Keep has added; this one can use it")
    else:
        yield ServerFact("schema", "ok", f"{have}, which is what this Keep has")


def _free(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    most, used, of_user, of_database = _one(
        connection,
        "select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
        "- coalesce(current_setting('reserved_connections', true)::int, 0), "
        "(select count(*) from pg_stat_activity where backend_type = 'client backend'), "
        "(select rolconnlimit from pg_roles where rolname = current_user), "
        "(select datconnlimit from pg_database where datname = current_database())")
    limits = [int(each) for each in (of_user, of_database) if each >= 0]
    free = min([int(most) - int(used), *limits])
    said = f"{free} are free of {most}; a host takes up to {CONNECTIONS_PER_HOST}"
    if limits:
        said += f" (this user or database may have {min(limits)})"
    if free < CONNECTIONS_PER_HOST:
        yield ServerFact("free connections", "warn", f"{said}.", "Raise max_connections, or the limit of the user.")
    else:
        yield ServerFact("free connections", "ok", said)


def _clock(connection: Connection, url: str, clock: Clock) -> Iterator[ServerFact]:
    took, off = [], []
    for _ in range(_TRIPS):
        asked, began = clock.now_ms(), clock.steady_ms()
        [at] = _one(connection, "select (extract(epoch from clock_timestamp()) * 1000)::bigint")
        spent = clock.steady_ms() - began
        took.append(spent)
        off.append(int(at) - asked - spent // 2)
    trip, apart = median(took), round(median(off))
    if abs(apart) > _CLOCK_MS_WARN:
        yield ServerFact(
            "database clock", "warn",
            f"{abs(apart) / 1000:.1f} s {'ahead of' if apart > 0 else 'behind'} this machine's.",
            "Set both by NTP. Nothing is lost meanwhile: leases go by the database, and order by neither.")
    else:
        yield ServerFact("database clock", "ok", "it agrees with this machine's")
    if trip > _TRIP_MS_WARN:
        yield ServerFact("round trip", "warn", f"{trip:.0f} ms to the database and back: each run waits for some.",
                         "Run hosts near the database.")
    else:
        yield ServerFact("round trip", "ok", "under 1 ms" if trip < 1 else f"{trip:.0f} ms")


_CHECKS: tuple[Callable[[Connection, str, Clock], Iterator[ServerFact]], ...] = (
    _server, _standby, _rights, _encryption, _pooler, _ledger, _free, _clock,
)
