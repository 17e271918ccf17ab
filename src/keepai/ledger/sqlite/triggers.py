"""The guards of ledger/guards.py as SQLite triggers."""

from __future__ import annotations

from ..guards import guards


def statements() -> dict[str, str]:
    """Every derived trigger by its name."""
    return {
        guard.name: f"before {guard.act} on {guard.table} {f'when {guard.when} ' if guard.when else ''}"
        f"begin select raise(abort, '{guard.why}'); end"
        for guard in guards()
    }
