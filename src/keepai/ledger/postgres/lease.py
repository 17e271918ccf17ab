"""Which hosts have a place on a ledger, and which of them runs which workflow (docs/internals/ownership.md).

A host says every 3 s that it lives. One that has been silent for 15 s, by the database's clock, has lost its place:
whatever it still writes is refused, and others run its workflows. But silent is not dead: a call of it may be on its
way. It is known to be dead only when it has ended in order, when the lock is free that it and the processes of its
connectors hold on their machine, or when a person says so.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Collection
from math import ceil
from pathlib import Path

from ...model.clock import iso
from ...model.errors import LedgerUnusable, Refused
from ..base import Reader, Row, Share, Tx
from ..transitions import mutations, workflows
from ..transitions.mutations import LateEvidence

#: So long a silent host keeps its place.
LEASE_MS = 15_000
BEAT_S = 3.0
#: So long before that, by its own clock, it sends nothing more and ends the calls that are under way.
MARGIN_MS = 3_000
#: How often a host looks which workflows nobody runs.
SHARE_S = 2.0

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class MachineLock:
    """A lock that is free when the host and all processes that inherited it are dead, and not before."""

    def __init__(self, host: str) -> None:
        self.boot = boot()
        # Hosts of several ledgers may have the same id, and those that were killed leave their files.
        self.fd, path = tempfile.mkstemp(".lock", f"keep-{host}-", Path(tempfile.gettempdir()).resolve())
        self.path = Path(path)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def release(self, *, told: bool) -> None:
        """Let go. If the database was told, nobody will ask; if not, the file stays: that it is free says so."""
        if told:
            self.path.unlink(missing_ok=True)
        os.close(self.fd)


def boot() -> str:
    """This boot of this machine; empty where the system does not say."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def machine() -> str:
    """The name of this machine, for people."""
    return socket.gethostname()


def share(tx: Tx, works: bool, spare: Collection[str], locks: list[Path]) -> Share:
    """See which hosts are left, and have this one run its part of the workflows: with n hosts, an n-th of them.

    Gives in `locks` the files that nobody needs once this is committed: those of hosts that are dead."""
    hosts = [host for host in tx.all("heartbeat_all") if not _falls_out(tx, host, locks)]
    touched = _hear_late_marks(tx)
    drains = any(host["epoch"] == tx.epoch and host["drains"] for host in hosts)
    takers = sum(1 for host in hosts if host["works"] and not host["drains"])
    claimed, given = set(), set()
    there = tx.row("owner_count", "a count is always there", epoch=tx.epoch)
    if works and not drains:
        more = ceil(there["workflows"] / takers) - there["own"]
        for row in tx.all("owner_free", limit=more) if more > 0 else ():
            tx.run("owner_take", workflow_id=row["workflow_id"], epoch=tx.epoch)
            claimed.add(str(row["workflow_id"]))
        for workflow_id in list(spare)[:-more] if more < 0 else ():
            tx.run("owner_give", workflow_id=workflow_id, epoch=tx.epoch)
            given.add(workflow_id)
    touched |= {str(row["workflow_id"]) for row in tx.all("nudge_take", epoch=tx.epoch)} - claimed
    if given:
        tx.one("nudge_others")
    owns = there["own"] + len(claimed) - len(given)
    return Share(frozenset(claimed), frozenset(given), frozenset(touched), owns, drains)


def _falls_out(tx: Tx, host: Row, locks: list[Path]) -> bool:
    """Whether another host is dead, or silent for too long; if so, that is on record from now on."""
    if host["epoch"] == tx.epoch:
        return False
    if _is_dead(host):
        end(tx, host["epoch"])
        locks.append(Path(host["lock"]))
        return True
    if host["silent_ms"] >= LEASE_MS and not host["works"]:
        end(tx, host["epoch"])  # it sends nothing, dead or not
    elif host["lost_at"] is None and host["silent_ms"] >= LEASE_MS:
        tx.run("heartbeat_lose", epoch=host["epoch"], now=tx.now)
    return host["lost_at"] is not None or host["silent_ms"] >= LEASE_MS


def end(tx: Tx, epoch: int) -> None:
    """A host is dead: nothing of its calls can leave any more, and whoever runs their workflows has to know."""
    for row in tx.all("mutation_of_epoch", epoch=epoch):
        tx.run("nudge_insert", workflow_id=row["workflow_id"])
    tx.run("heartbeat_end", epoch=epoch)
    mutations.close_dead(tx)
    tx.one("nudge_others")


def leave(tx: Tx, epoch: int, under_way: Collection[str]) -> bool:
    """This process had a place before, of this epoch. All its calls have ended but those under way: true if none is."""
    goes_on = False
    for row in tx.all("mutation_of_epoch", epoch=epoch):
        if row["id"] in under_way:
            goes_on = True
        else:
            tx.run("mutation_close", mutation_id=row["id"], now=tx.now)
            tx.run("nudge_insert", workflow_id=row["workflow_id"])  # whoever asked a person can look it up now
    if goes_on:
        tx.run("heartbeat_lose", epoch=epoch, now=tx.now)
    else:
        tx.run("heartbeat_end", epoch=epoch)
    tx.one("nudge_others")
    return not goes_on


def bury(tx: Tx, host: str, actor: str) -> None:
    """A person says that a silent host is dead, and will never send anything again."""
    found = _present(tx, host)
    if found["lost_at"] is None and found["silent_ms"] < LEASE_MS:
        raise Refused(
            f"Host {host} is not dead: it was heard {found['silent_ms'] // 1000} s ago. To end it, say `keep host "
            f"drain {host}`, or end its process.")
    workflows.note(tx, None, "host_dead", host, actor, {"machine": found["machine"], "pid": found["pid"]})
    end(tx, found["epoch"])


def drain(tx: Tx, host: str, actor: str) -> None:
    """A person wants a host to hand over its work and end."""
    found = _present(tx, host)
    workflows.note(tx, None, "host_drain", host, actor, {"machine": found["machine"], "pid": found["pid"]})
    tx.run("heartbeat_drain", epoch=found["epoch"])
    tx.one("nudge_others")


def _present(tx: Tx, host: str) -> Row:
    """A host that has not ended."""
    found = next((each for each in tx.all("heartbeat_all") if each["id"] == host), None)
    if found is None:
        raise Refused(f"No host {host} is here: it has ended, or there never was one. `keep hosts` lists them.")
    return found


def refuse_if_in_use(read: Reader, name: str) -> None:
    """Refuse a ledger that a host has, or from which a call may be on its way."""
    for host in read.all("heartbeat_all"):
        if _is_dead(host):
            continue
        said = f"host {host['id']} (process {host['pid']} on {host['machine']}, since {iso(host['started_at'])})"
        silent_s = host["silent_ms"] // 1000
        if host["silent_ms"] < LEASE_MS:
            raise LedgerUnusable(
                f"The ledger {name} is in use by {said}, which was heard {silent_s} s ago. Stop it first: `keep host "
                f"drain {host['id']}`, or end its process.")
        unclosed = read.one("mutation_of_epoch", epoch=host["epoch"])
        if unclosed is not None:
            raise LedgerUnusable(
                f"The ledger {name} was left by {said}, which has been silent for {silent_s} s and is not known to be "
                f"dead: a call of it ({unclosed['id']}) may be on its way. Start Keep on {host['machine']}, where one "
                "can see that the host has ended; or, if that machine is off for good, say `keep host dead "
                f"{host['id']}`.")


def _hear_late_marks(tx: Tx) -> set[str]:
    """What other hosts know of calls that they made in workflows that this one runs by now."""
    heard = set()
    for row in tx.all("late_mark_take", epoch=tx.epoch):
        happened = None if row["happened"] is None else bool(row["happened"])
        mutations.close(tx, row["mutation_id"], LateEvidence(row["said"], happened, row["result"], row["outcome"]))
        heard.add(str(row["workflow_id"]))
    return heard


def _is_dead(host: Row) -> bool:
    """Whether it is certain that a host has ended: nobody holds its lock on this machine."""
    if not host["boot"] or host["boot"] != boot():
        return False
    try:
        fd = os.open(host["lock"], os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
