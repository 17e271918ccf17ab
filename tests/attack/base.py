"""What the areas of `make attack` share: an attack, what it means that one got through, and how an area is run.

An attack goes through a door that a stranger, a script or another program has. It ends normally if Keep held, and
raises `Broken` with what got through otherwise. Whatever else it raises counts as broken too: an attack that cannot
tell is no proof. Each area also has planted weaknesses, with which an attack must get through: they show that it can.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from keepai.testing import Crashed
from tests.prove.base import TooLong, limited

ATTACK_S_MAX = 60.0  # for one attack; the slowest takes a few seconds
DRAWN = "drawn"  # stands for the drawn attacks alone
ROUNDS_LEAST = 10  # of what is drawn, however little time there is


class Broken(Exception):
    """An attack got through."""


@dataclass(frozen=True)
class Attack:
    """One attack: a sentence that names it, and what makes it."""

    name: str
    make: Callable[[], Awaitable[None] | None]


@dataclass(frozen=True)
class Planted:
    """A weakness put in for a test of the attacks: some attack with `breaks` in its name must get through.

    With `rounds`, one of so many drawn attacks must.
    """

    name: str
    weaken: Callable[[], AbstractContextManager[Any]]
    breaks: str = DRAWN
    rounds: int = 0


@dataclass(frozen=True)
class Area:
    """What is attacked: `place` sets it up in a folder, `attacks` are the same each time, `drawn` follows a seed."""

    name: str
    says: str
    place: Callable[[Path], AbstractAsyncContextManager[Any]]
    attacks: Callable[[Any], Iterable[Attack]]
    drawn: Callable[[Any, Random], Attack] | None = None
    planted: tuple[Planted, ...] = ()


@dataclass(frozen=True)
class Through:
    """An attack that got through, and how to repeat it alone."""

    attack: str
    what: str
    alone: str


@dataclass
class Tally:
    """What was tried in one area."""

    area: str
    says: str
    tried: int = 0
    broken: list[Through] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def held(self) -> int:
        """Attacks that did not get through."""
        return self.tried - len(self.broken)


@contextmanager
def refused(what: str, *errors: type[BaseException]) -> Iterator[None]:
    """What is inside must end in one of these errors; if it does not, `what` got through."""
    try:
        yield
    except errors:
        return
    raise Broken(what)


def must(holds: object, what: str) -> None:
    """`what` got through unless it holds."""
    if not holds:
        raise Broken(what)


@contextmanager
def together(*weaknesses: AbstractContextManager[Any]) -> Iterator[None]:
    """Several weaknesses as one."""
    with ExitStack() as stack:
        for each in weaknesses:
            stack.enter_context(each)
        yield


async def run(
    area: Area, folder: Path, *, seed: int = 1, rounds: int | None = None, seconds: float = 0.0, only: str = "",
    first: bool = False,
) -> Tally:
    """Attack one area: all fixed attacks, then `rounds` drawn ones, or as many as `seconds` allow.

    `only` narrows it to the fixed attacks that have these words in their names; digits mean the drawn attack of that
    seed. With `first`, the first attack that gets through ends it.
    """
    tally, began = Tally(area.name, area.says), time.monotonic()
    async with area.place(folder) as place:
        for name, attack in _chosen(area, place, only, _seeds(seed, rounds, began + seconds)):
            await _try(tally, attack, name)
            if first and tally.broken:
                break
    tally.seconds = time.monotonic() - began
    return tally


def _chosen(area: Area, place: Any, only: str, seeds: Iterator[int]) -> Iterator[tuple[str, Attack]]:
    """The attacks to make, each with the name by which it is made alone."""
    if not only.isdigit():
        yield from ((attack.name, attack) for attack in area.attacks(place) if only in attack.name)
    if area.drawn is not None and (only.isdigit() or only in ("", DRAWN)):
        for number in [int(only)] if only.isdigit() else seeds:
            yield str(number), area.drawn(place, Random(f"{area.name} {number}"))


def _seeds(first: int, rounds: int | None, until: float) -> Iterator[int]:
    number = 0
    while number < (ROUNDS_LEAST if rounds is None else rounds) or (rounds is None and time.monotonic() < until):
        yield first + number
        number += 1


async def _try(tally: Tally, attack: Attack, name: str) -> None:
    tally.tried += 1
    said: list[str] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def note(_: object, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crashed):  # an attack's own
            said.append(str(context.get("exception") or context["message"]))

    loop.set_exception_handler(note)
    try:
        with limited(ATTACK_S_MAX):
            made = attack.make()
            if inspect.isawaitable(made):
                await made
        if said:
            raise Broken(f"an error that nothing caught: {said[0]}")
    except (Exception, TooLong) as error:
        what = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        alone = f'python -m tests.attack --only {tally.area} --attack "{name}"'
        tally.broken.append(Through(attack.name, what[:600], alone))
        print(f"broken: {tally.area}: {attack.name}: {what[:600]}\n  {alone}", file=sys.stderr, flush=True)
    finally:
        loop.set_exception_handler(before)


def table(tallies: list[Tally]) -> str:
    """The result for people."""
    lines = [f"{'area':<13}{'tried':>9}{'held':>9}{'broken':>9}{'time':>8}  what is attacked"]
    for each in tallies:
        lines.append(f"{each.area:<13}{each.tried:>9,}{each.held:>9,}{len(each.broken):>9,}"
                     f"{each.seconds:>7.1f}s  {each.says}")
    tried, held = sum(each.tried for each in tallies), sum(each.held for each in tallies)
    lines.append(f"{'all':<13}{tried:>9,}{held:>9,}{tried - held:>9,}{sum(each.seconds for each in tallies):>7.1f}s")
    for each in tallies:
        for found in each.broken[:20]:
            lines += ["", f"{each.area}: {found.attack}", f"  got through: {found.what}", f"  alone: {found.alone}"]
    return "\n".join(lines)
