"""A few of the bad repairs that `python -m tests.shadow` makes by the hundred."""

from __future__ import annotations

from tests.shadow.bad_repairs import UNSEEN, made
from tests.shadow.table import outcomes


async def test_the_gate_lets_the_good_repairs_in_and_no_bad_one_that_it_can_see() -> None:
    offered = list({each.kind: each for each in made(60, seed=7)}.values())
    let_in = [kind for kind, why in await outcomes(offered) if why is None and kind not in UNSEEN]
    assert let_in == [], f"of {len(offered)} kinds"
