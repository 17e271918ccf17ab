"""Every mutation of every connector against every fault of the contract, in one table with the effects of each.

`python -m tests.connectors.matrix` holds the subjects of the tests against the contract, on the tests' servers, and
prints the table; `--write` puts it into docs/reference/contract.md as well, `--only sql.` takes some rows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from keepai.connectors import TYPES, load
from keepai.testing.contract import Report, Subject, Trial, examine
from keepai.testing.contract.examine import FALSE_APPLIED, FALSE_FAILED, LOOKING, SENDING
from tests.connectors import mail_servers
from tests.connectors.google_subjects import GOOGLE
from tests.connectors.mail_subjects import MAIL, MailSubject
from tests.connectors.slack_subjects import SLACK
from tests.connectors.subjects import SUBJECTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "contract.md"
CALM = ("applied", "the same key twice", "no time left")
VAIN = ("never sent", "another key")
FAULTS = tuple(fault.value.replace("_", " ") for fault in (*SENDING, *LOOKING))
#: Column → how the names of its trials begin.
COLUMNS: dict[str, tuple[str, ...]] = {
    "nothing wrong": CALM, "looked up in vain": VAIN, **{fault: (fault,) for fault in FAULTS},
    "odd answer": ("it happens, and the answer is",), "refused": ("refused: ",), "killed": ("killed: ",),
}
#: How what was said last begins → the word for it.
WORDS = {
    "looked up: applied": "found", "looked up: failed": "absent", "looked up: ": "asks", "unknown: ": "asks",
    "applied: ": "sent", "": "refused",
}

ABOUT = """# What each connector does at each fault

Every mutation of every connector was tried against every fault of [the contract](../guides/connectors.md#prove-it), on
real servers or on loopback. A cell has the number of effects that the outside system counted, a slash, the number of
trials, and how they ended. More effects than trials would mean that something happened twice.

- `sent`: the call succeeded. If the first was lost, this is the second, after a proof that the first had no effect.
- `found`: a look-up said that it happened.
- `absent`: a look-up proved that it did not happen.
- `asks`: the outcome is unknown; Keep asks again, or asks a person.
- `–`: this outside system cannot have that fault.

```
make contract ARGS=--write                       # writes this page again; takes some minutes
python -m tests.connectors.matrix --only sql.    # some rows
```

"""


@dataclass(frozen=True)
class Row:
    """One mutation in one circumstance."""

    name: str
    safety: str  # the class: A, B or C
    subject: type[Subject]

    def cells(self, report: Report) -> list[str]:
        """Its line of the table."""
        return [self.name, self.safety, *(_cell(_trials(report, begins)) for begins in COLUMNS.values())]


def rows() -> list[Row]:
    """All subjects of connectors that come with Keep, by name; `how` tells several of one operation apart."""
    mail = [] if mail_servers.why_not() else MAIL
    found = [row for each in (*SUBJECTS, *GOOGLE, *SLACK, *mail) if (row := _row(each))]
    return sorted(found, key=lambda row: row.name)


def _row(kind: type[Subject]) -> Row | None:
    with tempfile.TemporaryDirectory(prefix="keep-matrix-") as folder:
        subject = kind(Path(folder))
        try:
            connector = subject.connector()
        finally:
            subject.close()
    type_name = next((name for name in TYPES if isinstance(connector, load(name))), None)
    if type_name is None:
        return None
    name, safety = f"{type_name}.{subject.operation}", connector.operations[subject.operation].safety
    return Row(f"`{name}` {getattr(kind, 'how', '')}".strip(), safety, kind)


def _trials(report: Report, begins: tuple[str, ...]) -> list[Trial]:
    whole = begins[0] in (*CALM, *VAIN, *FAULTS)
    return [each for each in report.trials if (each.name in begins if whole else each.name.startswith(begins))]


def _cell(trials: Sequence[Trial]) -> str:
    if not trials:
        return "–"
    ends = Counter(next(word for begin, word in WORDS.items() if trial.said[-1].startswith(begin)) for trial in trials)
    words = [f"{count} {word}" if len(trials) > 1 else word for word, count in sorted(ends.items())]
    broken = " **broken**" if any(trial.broken for trial in trials) else ""
    return f"{sum(trial.effects for trial in trials)}/{len(trials)} {', '.join(words)}{broken}"


def table(found: Sequence[tuple[Row, Report]]) -> str:
    """The table, and what it adds up to."""
    lines = [["Mutation", "Class", *COLUMNS], *(row.cells(report) for row, report in found)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    shown = [f"| {' | '.join(each.ljust(width) for each, width in zip(line, widths, strict=True))} |" for line in lines]
    shown.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join([*shown, "", totals([report for _, report in found])])


def totals(reports: Sequence[Report]) -> str:
    """What all trials come to, in one line."""
    trials = [trial for report in reports for trial in report.trials]
    told = {
        "subjects": len(reports), "trials": len(trials), "effects": sum(trial.effects for trial in trials),
        "second effects": sum(max(0, trial.effects - 1) for trial in trials),
        'false "failed"': _counted(trials, FALSE_FAILED), 'false "applied"': _counted(trials, FALSE_APPLIED),
        "rules broken": sum(len(trial.broken) for trial in trials),
    }
    return f"Total: {', '.join(f'{count:,} {what}' for what, count in told.items())}."


def _counted(trials: Iterable[Trial], rule: str) -> int:
    return sum(any(rule in each for each in trial.broken) for trial in trials)


@contextlib.contextmanager
def _servers() -> Iterator[None]:
    if why := mail_servers.why_not():
        print(f"mail is left out: {why}", file=sys.stderr)
        yield
        return
    with mail_servers.running() as MailSubject.servers:
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all, print the table; 1 if a rule is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.connectors.matrix", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name begins so")
    parser.add_argument("--write", action="store_true", help="write docs/reference/contract.md, too")
    given = parser.parse_args(arguments)
    if given.write and given.only:
        parser.error("the page has all rows: --write does not go with --only")
    found: list[tuple[Row, Report]] = []
    with _servers():
        for row in rows():
            if row.name.startswith(f"`{given.only}"):
                found.append((row, asyncio.run(examine(row.subject))))
                print(f"{row.name}: {len(found[-1][1].trials)} trials", file=sys.stderr)
    text = table(found)
    print(text)
    for _, report in found:
        if report.broken:
            print(report)
    if given.write:
        PAGE.write_text(f"{ABOUT}{text}\n", "utf-8")
    return int(any(report.broken for _, report in found))


if __name__ == "__main__":
    sys.exit(main())
