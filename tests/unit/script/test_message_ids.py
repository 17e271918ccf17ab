"""A repair must keep the names of events: every name at a place counts."""

from __future__ import annotations

import pytest

from keepai.script.check import check
from keepai.script.message_ids import renamed
from tests.unit.script.samples import CLEAN, SURFACE

BOTH = ("`${mail.id}-a`", "`${mail.id}-b`")


def naming(*names: str) -> str:
    """A producer that publishes one event under each name, in one step, to one topic."""
    calls = "".join(
        f'await ctx.publish("mail.in", {{ {f"messageId: {name}, " if name else ""}inputId, payload: {{}} }});'
        for name in names)
    register = 'const inputId = ctx.registerInput({ source: "gmail", type: "email", id: mail.id, title: "t" });'
    return CLEAN.replace("// PRODUCER", f"for (const mail of await ctx.gmail.search({{}})) {{ {register} {calls} }}")


@pytest.mark.parametrize(("after", "lost"), [
    (BOTH, None),
    (BOTH[::-1], None),
    ((*BOTH, "`${mail.id}-c`"), None),
    ((), None),
    ((BOTH[0],), BOTH[1]),
    ((BOTH[1],), BOTH[0]),
    ((BOTH[0], BOTH[0]), BOTH[1]),
    ((BOTH[0], "`${mail.id}-c`"), BOTH[1]),
    (("`${mail.id}-c`", BOTH[1]), BOTH[0]),
    ((BOTH[0], ""), BOTH[1]),
], ids=str)
def test_two_names_in_one_step_are_both_kept(after: tuple[str, ...], lost: str | None) -> None:
    found = renamed(check(naming(*BOTH), SURFACE).message_ids, check(naming(*after), SURFACE).message_ids)
    assert (None if found is None else found[1].text) == lost
