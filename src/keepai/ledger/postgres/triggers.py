"""The guards of ledger/guards.py as PostgreSQL triggers, one for each row that changes.

A guard whose condition looks at no other table is a trigger with that condition: nothing is called for a row that it
lets pass. A `when` cannot look at other tables, so every other guard has a function of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..guards import guards

_REFUSE = "raise exception '%', tg_argv[0] using errcode = 'check_violation';"


def statements() -> Iterator[str]:
    """What makes every trigger, in a schema that has none of them."""
    yield f"create function refuse() returns trigger language plpgsql as $$ begin {_REFUSE} end $$"
    for guard in guards():
        called, when = "refuse", f"when ({guard.when}) " if guard.when else ""
        if guard.when and "select" in guard.when:
            called, when = f"refuse_{guard.name}", ""
            yield (
                f"create function {called}() returns trigger language plpgsql set search_path from current as "
                f"$$ begin if {guard.when} then {_REFUSE} end if; return new; end $$"
            )
        yield (
            f"create trigger {guard.name} before {guard.act} on {guard.table} for each row {when}"
            f"execute function {called}('{guard.why}')"
        )
