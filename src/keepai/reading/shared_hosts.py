"""The hosts of a ledger that several share: how each stands, and which one runs a workflow."""

from __future__ import annotations

from ..ledger.base import OpenReader, SeenHost
from .wording import ago


def state(host: SeenHost) -> str:
    """How a host stands, in a word or two."""
    if not host.lives:
        return "silent"
    return "hands over" if host.drains else "at work" if host.works else "a command"


def place(host: SeenHost) -> str:
    """Where a host is."""
    return f"process {host.pid} on {host.machine}"


def heard(host: SeenHost) -> str:
    """When a host last said that it lives, by the clock of the database."""
    return ago(0, host.silent_ms)


def at_work(read: OpenReader) -> list[SeenHost]:
    """The hosts that run workflows now."""
    return [host for host in read.hosts() if host.works and host.lives]


def runner(read: OpenReader, workflow_id: str) -> SeenHost | None:
    """The host at work that runs a workflow, if the ledger knows of one."""
    id = read.host_of(workflow_id)
    return next((host for host in at_work(read) if host.id == id), None)


def runs_on(read: OpenReader, workflow_id: str) -> str:
    """Which host runs a workflow of a ledger that several share, in a few words; nothing on another ledger."""
    if read.path is not None:
        return ""
    host = runner(read, workflow_id)
    return f"host {host.id}, {place(host)}" if host else "no host runs it"


def no_runner(read: OpenReader) -> str:
    """What becomes of a workflow that no host runs."""
    if any(not host.drains for host in at_work(read)):
        return "A host that is at work takes it over within seconds."
    return "Nothing happens in it until `keep dev` or `keep serve` starts a host."
