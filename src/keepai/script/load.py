"""A script that is good enough to run, or an exception with everything that is wrong with it."""

from __future__ import annotations

from ..model.errors import ScriptInvalid
from ..model.operations import Surface
from .check import check
from .manifest import Manifest


def load(source: str, surface: Surface | None = None, *, mutate_reads: bool = False) -> Manifest:
    """The manifest of a script; raises `ScriptInvalid` if it has errors. Warnings do not raise."""
    checked = check(source, surface, mutate_reads=mutate_reads)
    if checked.errors or checked.manifest is None:
        raise ScriptInvalid(checked.findings)
    return checked.manifest
