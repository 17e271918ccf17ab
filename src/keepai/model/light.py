"""Records that are made often: frozen for the type checker, and without the guard that would make them slow.

A frozen dataclass sets each of its fields by a call, which takes three times as long as setting it, and a run makes
some fifty of them. It is for what the host hands on to itself; what people are given (`records.py`) keeps its guard.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")


def light(cls: type[T]) -> type[T]:
    """Take the guard off a frozen dataclass. That nobody changes one is left to the type checker."""
    record: Any = cls
    known = record.__dataclass_fields__
    for field in fields(record):
        setattr(cls, field.name, field)
    del record.__setattr__, record.__delattr__
    dataclass(eq=False, repr=False, match_args=False)(cls)  # makes `__init__` anew; the rest stays
    record.__dataclass_fields__ = known
    return cls
