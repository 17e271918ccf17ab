"""Connects to a PostgreSQL server with the URL in keep.toml and the password in the vault, and with nothing else.

libpq, which psycopg uses, also reads environment variables (`PGHOST`, `PGSSLMODE`, `PGSERVICE`, `PGOPTIONS`, …),
`~/.pgpass`, service files and a client certificate in the home folder. Each of them could send Keep to another server,
without encryption, or as another user, and keep.toml would not show it. So none of them is read here. What the URL does
not say gets a safe default: a server on another machine must prove who it is, and no server gets the password itself.
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

#: Parameters of libpq that name a file with parameters or passwords; they are refused.
_NOT_READ = ("service", "servicefile", "passfile")
#: Parameters that psycopg would otherwise take from environment variables.
_ASKED: Mapping[str, str] = MappingProxyType({
    "host": "", "hostaddr": "", "port": "5432", "target_session_attrs": "any", "load_balance_hosts": "disable",
})
_NO_FILE = os.path.join(os.devnull, "none")  # it cannot exist; an empty name would mean ~/.pgpass


def checked(url: str) -> None:
    """Refuse a URL that refers to parameters elsewhere."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ConfigError(f"url is not an address of a PostgreSQL database: {' '.join(str(error).split())}") from None
    for name in _NOT_READ:
        if name in given:
            raise ConfigError(
                f"url must not name a {name}: keep.toml must say what Keep connects to, and the vault must hold the "
                "password. Write host, database and user into the url, and run: keep secrets set NAME password"
            )


def parameters(url: str) -> dict[str, Any]:
    """The parameters of a connection: those of the URL, and safe defaults for the others."""
    from psycopg.conninfo import conninfo_to_dict

    given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    safe = {**_ASKED, "require_auth": "scram-sha-256", "gssencmode": "disable", "passfile": _NO_FILE}
    if not is_loopback(given):
        safe["sslmode"] = "verify-full"
    if "sslcert" not in given:
        safe["sslcertmode"] = "disable"  # the server sees no certificate of the user who runs Keep
    if given.get("sslmode", safe.get("sslmode", "")).startswith("verify-"):
        safe["sslrootcert"] = ssl.get_default_verify_paths().cafile or "system"
    return {**safe, **given}


def is_loopback(given: Mapping[str, str]) -> bool:
    """Whether the connection stays on this machine: every address that it may use is the machine's own."""
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
    """A connection in which each statement is its own transaction unless one was begun."""
    connection = await _connection_class().connect(
        **parameters(url), password=password, autocommit=True, connect_timeout=seconds, prepare_threshold=None,
        application_name="keep",
    )
    if "began_without_variables" not in vars(connection):
        connection.pgconn.finish()
        raise PreconditionFailed(
            "This version of psycopg connects in a way that Keep does not know, so PG* variables would take effect. "
            "Install the version that Keep was tested with (see requirements/ in its repository)."
        )
    return connection


@cache
def _connection_class() -> type[psycopg.AsyncConnection[Any]]:
    import psycopg

    class IsolatedConnection(psycopg.AsyncConnection[Any]):
        """Starts to connect while libpq sees no variable. libpq reads them in its first step only."""

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
    """Hide the variables of libpq. Nothing else runs in this thread meanwhile, so nothing misses them."""
    hidden = {name: value for name, value in os.environ.items() if name.startswith("PG")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
