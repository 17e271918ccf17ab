"""Fast records: frozen for the type checker, but without the slow check at run time.

A frozen dataclass sets each field with a function call, which takes three times as long as an assignment, and a run
makes about fifty records. This is for values that only the host uses. Records for people (`records.py`) stay frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")


def fast_record(cls: type[T]) -> type[T]:
    """Remove the run-time check of a frozen dataclass. Only the type checker then prevents changes."""
    record: Any = cls
    known = record.__dataclass_fields__
    for field in fields(record):
        setattr(cls, field.name, field)
    del record.__setattr__, record.__delattr__
    dataclass(eq=False, repr=False, match_args=False)(cls)  # makes a new `__init__`; the rest stays
    record.__dataclass_fields__ = known
    return cls
