"""What is not the same in two contents, field by field: what was applied, and what the script wants now. Pure."""

from __future__ import annotations

import json
from typing import Any

ABSENT = "(absent)"


def differences(applied: Any, wanted: Any) -> tuple[list[tuple[str, str, str]], int]:
    """Each field that is not the same, as it was and as it is wanted; and how many others are the same."""
    before, now = _fields(applied), _fields(wanted)
    rows = [
        (name, before.get(name, ABSENT), now.get(name, ABSENT))
        for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)
    ]
    return rows, len(before.keys() | now.keys()) - len(rows)


def _fields(value: Any, path: str = "") -> dict[str, str]:
    """Each single value by its path, such as `row.name` or `values[2]`, as JSON."""
    if isinstance(value, dict) and value:
        parts = [_fields(inner, f"{path}.{name}" if path else str(name)) for name, inner in value.items()]
    elif isinstance(value, list) and value:
        parts = [_fields(inner, f"{path}[{number}]") for number, inner in enumerate(value)]
    else:
        return {path or "params": json.dumps(value, ensure_ascii=False)}
    return {name: text for part in parts for name, text in part.items()}
