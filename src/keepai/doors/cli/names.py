"""From what a person typed to the one thing that is meant: a name, an id, or the beginning of one."""

from __future__ import annotations

from collections.abc import Iterable

from ...ledger.base import Row
from ...model.errors import NotFound
from ...model.ids import range_of
from ...reading.look import Look
from .text import did_you_mean, listed

#: The beginning of an id → what it is, and the statements that find one by its id and list all of a workflow.
KINDS = {
    "run_": ("run", "run_by_id", "run_id", "look_runs"),
    "inp_": ("input", "input_by_id", "input_id", "look_inputs"),
    "evt_": ("event", "event_by_id", "event_id", "look_events"),
    "mut_": ("mutation", "mutation_by_id", "mutation_id", "look_mutations"),
    "itm_": ("item", "item_by_id", "item_id", "look_items"),
    "apr_": ("approval", "approval_by_id", "approval_id", "approval_all"),
    "fix_": ("repair", "repair_by_id", "repair_id", "look_repairs"),
    "prp_": ("proposal", "proposal_by_id", "proposal_id", "look_proposals"),
}
#: What else a listing wants to be given, to list all.
LISTING_PARAMS: dict[str, dict[str, object]] = {
    "look_inputs": {"search": None}, "look_events": {"topic": None, "status": None},
}
FOUND_MAX = 100  #: ids with one beginning that are counted


def workflow(look: Look, typed: str | None) -> Row:
    """The workflow with that name or id, or the only one whose name or id begins so. Nothing typed: the only one."""
    rows = look.read.all("workflow_all")
    if typed is None:
        return _only(rows)
    exact = [row for row in rows if typed in (row["id"], row["name"])]
    found = exact or [row for row in rows if typed and row["name"].startswith(typed)]
    found = found or [row for row in rows if typed.startswith("wf_") and row["id"].startswith(typed)]
    if len(found) == 1:
        return found[0]
    names = [str(row["name"]) for row in found or rows]
    if found:
        raise NotFound(f"{typed!r} could be {listed(names)}. Write the whole name.")
    if not rows:
        raise NotFound(f"There is no workflow {typed!r}: none is deployed yet. `keep deploy FILE` deploys one.")
    raise NotFound(f"There is no workflow {typed!r}. {did_you_mean(typed, names)}")


def workflows(look: Look, typed: str | None) -> list[Row]:
    """The workflow that is meant; nothing typed: all of them."""
    rows = look.read.all("workflow_all")
    return rows if typed is None and rows else [workflow(look, typed)]


def _only(rows: list[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise NotFound("No workflow is deployed yet. `keep deploy FILE` deploys one.")
    raise NotFound(f"There are several workflows: {listed([str(row['name']) for row in rows])}. Say which.")


def thing(look: Look, typed: str, kinds: Iterable[str]) -> tuple[str, str]:
    """What an id, or the only beginning of one, means: its kind and the whole id."""
    wanted = {prefix: entry for prefix, entry in KINDS.items() if entry[0] in kinds}
    prefix = typed[:4]
    if prefix not in wanted:
        meant = " or ".join(f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" for kind, *_ in wanted.values())
        shown = " or ".join(f"{each}…" for each in wanted)
        raise NotFound(f"{typed!r} is not the id of {meant}, which begins with {shown}.")
    kind, by_id, parameter, _ = wanted[prefix]
    if look.read.one(by_id, **{parameter: typed}) is not None:
        return kind, typed
    first, last = range_of(typed) or ("", "")
    rows = look.read.all("look_ids_beginning", kind=kind, first_id=first, last_id=last, limit=FOUND_MAX + 1)
    found = [str(row["id"]) for row in rows]
    if len(found) == 1:
        return kind, found[0]
    if found:
        number = f"more than {FOUND_MAX}" if len(found) > FOUND_MAX else str(len(found))
        raise NotFound(f"{typed!r} could be {number} {kind}s: {listed(found)}. Write more of it.")
    raise NotFound(f"There is no {kind} {typed}. `{_LISTS[kind]}` lists them.")


_LISTS = {
    "run": "keep runs WORKFLOW", "input": "keep inputs WORKFLOW", "event": "keep show INPUT",
    "item": "keep items WORKFLOW",
    "mutation": "keep outputs WORKFLOW", "approval": "keep todo", "repair": "keep todo",
    "proposal": "keep proposals",
}
