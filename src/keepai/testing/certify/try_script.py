"""What is certified: a script, its cases (or one that is made for it), and the connectors that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...connectors.base import Connector
from ...connectors.own_code import contract_of
from ...engine.certificate import BUILT_IN, NOT_TESTED, PASSED, Certification
from ...model.errors import KeepError, in_words
from ...model.policy import Policy
from ...script.check import check
from ..contract import examine, subjects_in
from ..fixtures import parse
from . import Progress, certify
from .made_case import made_case


async def try_script(
    source: str, cases: str | None, connectors: Sequence[Connector], policy: Policy, folder: Path, *, script: str,
    only: str | None = None, progress: Progress = lambda done, of: None,
) -> Certification:
    """The contracts of the connectors that a script uses, and every trial of it. Without cases, one is made."""
    file = folder / script
    chosen = parse(cases, file).cases if cases is not None else (made_case(source, connectors),)
    done = await certify(
        source, chosen, connectors, policy, script=script, only=only, progress=progress, made=cases is None)
    used = [each for each in connectors if each.name in _names(source)]
    contracts = {each.name: await contract_state(each) for each in used} if only is None else {}
    return replace(done, connectors={each.name: each.fingerprint() for each in used}, contracts=contracts)


def _names(source: str) -> set[str]:
    manifest = check(source).manifest
    return {name.partition(".")[0] for name in manifest.capabilities} if manifest else set()


async def contract_state(connector: Connector) -> str:
    """What `keep test-connector` finds, in a word or a sentence."""
    file = contract_of(type(connector))
    if file is None:
        return BUILT_IN
    if not file.is_file():
        return NOT_TESTED
    try:
        reports = [await examine(each) for each in subjects_in(file)]
    except KeepError as error:
        return f"it could not be tried: {error.message}"
    except Exception as error:  # raised by the owner's own code
        return f"it could not be tried: {in_words(error)}"
    broken = [f"{trial.name}: {trial.broken[0]}" for report in reports for trial in report.broken]
    return broken[0] if broken else PASSED if reports else NOT_TESTED
