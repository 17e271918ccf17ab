"""Cleans texts that outside systems return, and compares texts that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..operation import Comparison


def clean(text: str) -> str:
    """`text` without what JSON cannot carry: NUL is removed, half a surrogate pair becomes `?`."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def compare_texts(old: Any, new: Any) -> Comparison:
    """Compare two payloads: equal, equal except for white space, or different."""
    if old == new:
        return "equivalent"
    return "minor" if _single_spaced(old) == _single_spaced(new) else "significant"


def _single_spaced(payload: Any) -> Any:
    if not isinstance(payload, dict):
        return payload
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in payload.items()}
