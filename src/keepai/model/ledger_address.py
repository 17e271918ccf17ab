"""The address of a ledger in PostgreSQL: postgresql://USER@SERVER:PORT/DATABASE?option=value. Nothing is connected to.

An address may have a password in it. So whatever people see, or a file keeps, goes through `shown`.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl

EXAMPLE = "postgresql://keep@db.example.com/keep"

_SERVER = r"(?:\[[\w:.%]*\]|[^:@/?#\[\],]*)(?::\d*)?"
#: As PostgreSQL's own library reads it: what stands before the first @ is the user and the password.
_FORM = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:@/]*)(?::(?P<password>[^@/]*))?@)?"
    rf"(?P<servers>{_SERVER}(?:,{_SERVER})*)"
    r"(?:/(?P<database>[^/@?#]*))?(?:\?(?P<options>\w+=[^#]*)?)?")
_HIDDEN = re.compile(r"(?i)\b(\w*(?:password|secret)|scram_\w+_key)=[^&]*")


def is_address(place: str | Path) -> bool:
    """Whether this names a PostgreSQL database, and not a file."""
    return str(place).startswith(("postgresql://", "postgres://"))


def shown(place: str | Path) -> str:
    """A file as it is, or an address without its password."""
    if not is_address(place):
        return str(place)
    found = _FORM.fullmatch(str(place))
    if found is None:
        return "postgresql://…"  # which part of it is a password cannot be told
    user = f"{found['user']}@" if found["user"] is not None else ""
    database = f"/{found['database']}" if found["database"] is not None else ""
    options = "?" + _HIDDEN.sub(r"\1=…", found["options"]) if found["options"] else ""
    return found["scheme"] + user + found["servers"] + database + options


def has_password(address: str) -> bool:
    """Whether a password, or a key, stands in it."""
    found = _FORM.fullmatch(address)
    return found is not None and (found["password"] is not None or bool(_HIDDEN.search(found["options"] or "")))


def mistake(address: str) -> str | None:
    """Why nobody can connect with this address; it is not shown, for a part of it may be a password."""
    if _FORM.fullmatch(address):
        return None
    return (f"This address cannot be read; it must be such as {EXAMPLE}. If there is a password in it, leave that out: "
            "PostgreSQL finds it in PGPASSWORD or in ~/.pgpass.")


def database_of(address: str) -> str:
    """Which database it names, whoever asks for it and in which manner: for telling two addresses apart."""
    found = _FORM.fullmatch(address)
    if found is None:
        return address
    options = [f"{name}={value}" for name, value in sorted(parse_qsl(found["options"] or ""))
               if name in ("host", "hostaddr", "port", "dbname")]
    servers = re.sub(r":5432(?=,|$)", "", found["servers"].lower())
    return f"{servers}/{found['database'] or ''}?{'&'.join(options)}"
