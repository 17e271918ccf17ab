"""Proposals: scripts that wait until a person accepts or declines exactly what was shown. Each ends once, and stays."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.states import ProposalStatus
from ..account import as_facts
from ..base import Row, Tx
from . import workflows
from .workflows import Version


@dataclass(frozen=True)
class Proposed:
    """A script that somebody proposes, with what the host found out about it."""

    workflow_id: str | None  # None: of a workflow that is new
    name: str
    proposer: str
    source: str
    cases: str | None
    wanted: str
    why: str
    work: str | None
    facts: str
    digest: str
    expires_at: int


def propose(tx: Tx, proposed: Proposed) -> str:
    """It waits from now on; what the same proposer had proposed for this workflow is overtaken."""
    expire(tx)
    proposal_id = tx.new_id("prp")
    workflows.overtake_proposals(tx, proposed.name, f"{proposal_id} was proposed", proposed.proposer)
    tx.run("proposal_insert", proposal_id=proposal_id, status=ProposalStatus.WAITING, now=tx.now, **vars(proposed))
    facts = as_facts({"digest": proposed.digest})
    tx.tell(proposed.workflow_id or "", "proposal", proposal_id, None, ProposalStatus.WAITING, facts=facts)
    workflows.note(tx, proposed.workflow_id, "propose", proposal_id, proposed.proposer, {"digest": proposed.digest})
    return proposal_id


def accept(
    tx: Tx, row: Row, version: Version, number: tuple[int, int], before: tuple[int, int] | None,
) -> str:
    """A person accepts what was shown: it becomes the active version in this very step. Gives the workflow's id."""
    _end(tx, row, ProposalStatus.ACCEPTED, f"{number[0]}.{number[1]}")
    workflows.note(tx, row["workflow_id"], "accept", row["id"], version.actor, {"digest": row["digest"]})
    return workflows.deploy(tx, row["workflow_id"], version, number, before)


def decline(tx: Tx, row: Row, why: str, actor: str) -> None:
    """A person does not want it."""
    _end(tx, row, ProposalStatus.DECLINED, why)
    workflows.note(tx, row["workflow_id"], "decline", row["id"], actor, {"why": why})


def withdraw(tx: Tx, row: Row, actor: str) -> None:
    """Its proposer takes it back."""
    _end(tx, row, ProposalStatus.WITHDRAWN, f"withdrawn by {actor}")
    workflows.note(tx, row["workflow_id"], "withdraw", row["id"], actor, None)


def renew(tx: Tx, row: Row, facts: str, digest: str) -> None:
    """The host found out something else about it than was shown: from now on, that is what is shown."""
    tx.row("proposal_renew", f"proposal {row['id']} waits no longer", proposal_id=row["id"], facts=facts,
           digest=digest, now=tx.now)
    tx.tell(row["workflow_id"] or "", "shown", row["id"], row["digest"], digest)


def expire(tx: Tx) -> None:
    """What nobody decided in time ends."""
    for each in tx.all("proposal_expire", now=tx.now):
        _tell(tx, each, ProposalStatus.EXPIRED, "nobody decided in time")


def _end(tx: Tx, row: Row, target: ProposalStatus, note: str) -> None:
    waits = f"proposal {row['id']} no longer waits as it was shown"
    tx.row("proposal_move", waits, proposal_id=row["id"], digest=row["digest"], target=target, note=note, now=tx.now)
    _tell(tx, row, target, note)


def _tell(tx: Tx, row: Row, target: ProposalStatus, note: str) -> None:
    tx.tell(row["workflow_id"] or "", "proposal", row["id"], ProposalStatus.WAITING, target, note)
