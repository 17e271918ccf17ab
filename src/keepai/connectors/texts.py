"""Compares texts that people read: spaces and line ends do not make another one."""

from __future__ import annotations

from typing import Any

from .operation import Comparison


def compare_texts(old: Any, new: Any) -> Comparison:
    """Two payloads: equal, equal but for spaces, or different."""
    if old == new:
        return "equivalent"
    return "minor" if _squeezed(old) == _squeezed(new) else "significant"


def _squeezed(payload: Any) -> Any:
    if not isinstance(payload, dict):
        return payload
    return {key: " ".join(each.split()) if isinstance(each, str) else each for key, each in payload.items()}
