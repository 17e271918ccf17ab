"""The files of a connector that the owner of keep.toml has written: its own, and the one that tests it."""

from __future__ import annotations

import sys
from pathlib import Path

CONTRACT = "_contract.py"  #: how the file ends that says how to test a connector; it lies beside it


def own_code(cls: type) -> list[str]:
    """The texts of the file that a connector of the owner is in and of the one that tests it; of Keep's own, none."""
    file = contract_of(cls)
    if file is None:
        return []
    texts = (file.with_name(file.name.removesuffix(CONTRACT) + ".py"), file)
    return [each.read_text("utf-8", "replace") if each.is_file() else "" for each in texts]


def contract_of(cls: type) -> Path | None:
    """Where the file that tests a connector of the owner would be; None for one of Keep's own."""
    module = sys.modules.get(cls.__module__)
    if cls.__module__.partition(".")[0] == "keepai" or module is None or not getattr(module, "__file__", None):
        return None
    file = Path(str(module.__file__))
    return file.with_name(file.name.removesuffix(".py") + CONTRACT)
