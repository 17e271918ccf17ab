"""What trials found: what was done to the outside, what the connector said, what had happened, what that breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Trial:
    """One fault, one subject."""

    name: str
    said: list[str] = field(default_factory=list)  # by the call, then by each look-up and resend, in order
    effects: int = 0
    broken: list[str] = field(default_factory=list)  # the rules, in words
    notes: list[str] = field(default_factory=list)  # safe, but it could say more

    def must(self, holds: bool, rule: str) -> None:
        """Remember a rule that does not hold."""
        if not holds and rule not in self.broken:
            self.broken.append(rule)

    def as_json(self) -> dict[str, Any]:
        return {"trial": self.name, "said": self.said, "effects": self.effects, "broken": self.broken,
                "notes": self.notes}


@dataclass(frozen=True)
class Report:
    """All trials of one subject."""

    subject: str
    trials: Sequence[Trial]
    untried: Sequence[str]  # faults that the subject cannot bring about

    @property
    def broken(self) -> list[Trial]:
        """The trials in which a rule was broken."""
        return [trial for trial in self.trials if trial.broken]

    def __str__(self) -> str:
        lines = [f"{self.subject}: {len(self.trials)} trials, {len(self.broken)} broken"]
        for trial in self.broken:
            lines.append(f"  {trial.name}: said {' → '.join(trial.said) or 'nothing'}; effects: {trial.effects}")
            lines += [f"    {rule}" for rule in trial.broken]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        return {"subject": self.subject, "trials": [trial.as_json() for trial in self.trials],
                "untried": list(self.untried), "broken": len(self.broken)}
