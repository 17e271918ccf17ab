"""How a connection to a PostgreSQL server is made: from the URL in keep.toml and the vault, and from nothing else.

libpq, which psycopg uses, also reads variables (`PGHOST`, `PGSSLMODE`, `PGSERVICE`, `PGOPTIONS`, …), `~/.pgpass`,
service files and a client certificate in the home folder. Any of them could send Keep to another server, without
encryption, or as another user, and keep.toml would not show it. Nothing of that is read here. What the URL does not say
is safe: a server off the loopback must prove who it is, and no server is given the password itself.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...model.errors import ConfigError, PreconditionFailed

if TYPE_CHECKING:
    import psycopg

#: Parameters of libpq that name a file with parameters or passwords: they are not read.
_NOT_READ = ("service", "servicefile", "passfile")
#: What psycopg itself would take from a variable: it is given each of them.
_ASKED: Mapping[str, str] = MappingProxyType({
    "host": "", "hostaddr": "", "port": "5432", "target_session_attrs": "any", "load_balance_hosts": "disable",
})
_NO_FILE = os.path.join(os.devnull, "none")  # which cannot be there; an empty name would mean ~/.pgpass


def checked(url: str) -> None:
    """Refuse a URL that leads to parameters elsewhere."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ConfigError(f"url is not an address of a PostgreSQL database: {' '.join(str(error).split())}") from None
    for name in _NOT_READ:
        if name in given:
            raise ConfigError(
                f"url must not name a {name}: what Keep connects to must stand in keep.toml, and the password in the "
                "vault. Write host, database and user into the url, and say: keep secrets set NAME password"
            )


def parameters(url: str) -> dict[str, Any]:
    """What a connection is made with: what the URL says, and what is safe where it says nothing."""
    from psycopg.conninfo import conninfo_to_dict

    given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    safe = {**_ASKED, "require_auth": "scram-sha-256", "gssencmode": "disable", "passfile": _NO_FILE}
    if not is_loopback(given):
        safe["sslmode"] = "verify-full"
    if "sslcert" not in given:
        safe["sslcertmode"] = "disable"  # no certificate of the host's user is shown to the server
    if given.get("sslmode", safe.get("sslmode", "")).startswith("verify-"):
        safe["sslrootcert"] = ssl.get_default_verify_paths().cafile or "system"
    return {**safe, **given}


def is_loopback(given: Mapping[str, str]) -> bool:
    """Whether nothing of a connection leaves this machine: every address that it may go to is the machine's own."""
    addresses = (given.get("hostaddr") or given.get("host") or "").split(",")
    return all(_is_own(address.strip()) for address in addresses)


def _is_own(address: str) -> bool:
    if not address or address.startswith(("/", "@")) or address.lower() == "localhost":
        return True  # a socket in the file system, or the name that is reserved for the loopback
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


async def connect(url: str, password: str | None, seconds: int) -> psycopg.AsyncConnection[Any]:
    """A connection in which each statement is a transaction of its own unless one was begun."""
    connection = await _connection_class().connect(
        **parameters(url), password=password, autocommit=True, connect_timeout=seconds, prepare_threshold=None,
        application_name="keep",
    )
    if "began_without_variables" not in vars(connection):
        connection.pgconn.finish()
        raise PreconditionFailed(
            "This version of psycopg connects in another way than Keep knows, so PG* variables would count. Install "
            "the version that Keep was tested with (see requirements/ in its repository)."
        )
    return connection


@cache
def _connection_class() -> type[psycopg.AsyncConnection[Any]]:
    import psycopg

    class IsolatedConnection(psycopg.AsyncConnection[Any]):
        """Begins to connect while libpq sees no variable of its own. libpq reads them in its first step only."""

        @classmethod
        def _connect_gen(cls, *args: Any, **options: Any) -> Any:
            steps = super()._connect_gen(*args, **options)
            with _no_variables():
                asked = next(steps)
            while True:
                answer = yield asked
                try:
                    asked = steps.send(answer)
                except StopIteration as end:
                    vars(end.value)["began_without_variables"] = True
                    return end.value

    return IsolatedConnection


@contextmanager
def _no_variables() -> Iterator[None]:
    """Hide what libpq would read. Nothing else of this thread runs meanwhile, so nobody misses them."""
    hidden = {name: value for name, value in os.environ.items() if name.startswith("PG")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
