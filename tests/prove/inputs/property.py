"""What a property of the suite is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

#: Raises if the property does not hold for an input.
Holds = Callable[[Any], None]


@dataclass(frozen=True)
class Property:
    """A name, where its inputs come from, what must hold of each, and how many make one seed."""

    name: str
    strategy: SearchStrategy[Any]
    opened: Callable[[], AbstractContextManager[Holds]]  # for as long as one seed is tried
    examples: int


def shown(value: object) -> str:
    """An input for people; some of them cannot be shown, which is what they are for."""
    try:
        return f"{value!r:.600}"
    except Exception as error:
        return f"(a {type(value).__name__} that cannot be shown: {type(error).__name__})"


def pure(name: str, strategy: SearchStrategy[Any], holds: Holds, examples: int) -> Property:
    """A property that needs nothing but its input."""
    return Property(name, strategy, lambda: nullcontext(holds), examples)
