"""A worker locks itself in before its first job, and reports which locks hold.

The wasm sandbox is the first protection; this is the second, in case the first has a hole. If the system lacks a lock,
the worker reports that and runs: people see the report and decide.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass

from . import linux

#: Data, not address space: wasm reserves gigabytes of addresses and touches almost none.
_DATA_BYTES_MAX = 1 << 30
_CPU_S_MAX = 3600  # of a whole worker; single steps are limited much earlier


@dataclass(frozen=True)
class Protection:
    """One lock: whether it holds, and if not, why."""

    name: str
    active: bool
    why: str


#: name → what it does; in this order, before threads exist.
_FIRST: tuple[tuple[str, Callable[[], None]], ...] = (
    ("dies with its parent", linux.die_with_parent),
    ("no writable code", linux.no_writable_code),
    ("no core dumps or tracing", linux.not_dumpable),
    ("no new privileges", linux.no_new_privileges),
    ("no network (namespaces)", linux.no_network),
    ("no files (Landlock)", linux.no_files),
)


def protect(keep: Collection[int], before_seal: Callable[[], None]) -> tuple[Protection, ...]:
    """Lock this process in, keeping only the descriptors `keep`; `before_seal` may still start threads."""
    report = [_attempt("no inherited descriptors", lambda: _close_others(keep))]
    report.append(_attempt("empty environment", os.environ.clear))
    report += [_linux_only(name, act) for name, act in _FIRST]
    before_seal()
    report.append(_attempt("resource limits", _limit_resources))
    report.append(_linux_only("few system calls (seccomp)", linux.few_system_calls))
    return tuple(report)


def prepare() -> None:
    """What all workers need and can be made once, before they are forked."""
    if sys.platform == "linux":
        linux.prepare()


def _linux_only(name: str, act: Callable[[], None]) -> Protection:
    if sys.platform != "linux":
        return Protection(name, False, f"{sys.platform} has nothing like it that works without root")
    return _attempt(name, act)


def _attempt(name: str, act: Callable[[], None]) -> Protection:
    try:
        act()
    except (OSError, ValueError) as error:
        return Protection(name, False, str(error))
    return Protection(name, True, "")


def _close_others(keep: Collection[int]) -> None:
    """Close all but `keep`. Standard input and output point nowhere, so that their numbers are not reused."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    start = 3
    for descriptor in sorted(keep):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, max(start, os.sysconf("SC_OPEN_MAX")))


def _limit_resources() -> None:
    limit = resource.setrlimit
    limit(resource.RLIMIT_CORE, (0, 0))
    limit(resource.RLIMIT_FSIZE, (0, 0))
    limit(resource.RLIMIT_NOFILE, (0, 0))  # nothing new can be opened; what is open stays usable
    limit(resource.RLIMIT_CPU, (_CPU_S_MAX, _CPU_S_MAX + 5))
    limit(resource.RLIMIT_DATA, (_DATA_BYTES_MAX, _DATA_BYTES_MAX))
    limit(resource.RLIMIT_NPROC, (0, 0))
