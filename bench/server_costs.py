"""What a PostgreSQL server has spent so far: CPU of all its processes, bytes of its log, bytes of one database.

Both sides of the benchmark import it. A side asks before it begins to work and when it has done, over one connection.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from work import Figures

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SPENT = (
    "select pg_current_wal_lsn() - '0/0'::pg_lsn as wal_bytes, pg_database_size(current_database()) as bytes, "
    "pg_backend_pid() as pid"
)


def spent(address: str) -> Figures:
    """All of it so far. What this costs itself is hardly anything: the connection stays open."""
    row = _connection(address).execute(_SPENT).fetchone()
    assert row is not None
    log, kept, backend = row
    return {"server_cpu_ms": cpu_s(int(_stat(backend)[1])) * 1000, "wal_bytes": float(log), "bytes": kept}


@cache
def _connection(address: str) -> psycopg.Connection[Any]:
    return psycopg.connect(address, autocommit=True)


def cpu_s(first: int) -> float:
    """CPU time of the server's first process, of its children, and of those that have ended."""
    total = sum(map(int, _stat(first)[13:15])) / _TICKS_PER_S
    for each in [str(first), *Path(f"/proc/{first}/task/{first}/children").read_text().split()]:
        try:  # not in ticks: each of many processes would lose the rest of one
            total += int(Path(f"/proc/{each}/schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            continue  # it has just ended
    return total


def _stat(pid: int | str) -> list[str]:
    """What the kernel tells of a process: its state, its parent, …, its CPU time, that of its ended children."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
