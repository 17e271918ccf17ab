"""What monitoring reads, in the text form of Prometheus: counts of what happened, and how things stand now.

What happened is counted from the account, entry by entry, from the moment at which this process began to look. Each
host counts what it has written itself, so that the sums over all hosts are right. Nothing is counted when it is
written, so a host that nobody watches pays nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..ledger import account
from ..ledger.base import OpenReader
from .views import Views

_AT_ONCE = 200_000  #: entries of the account that one look counts; the rest is counted at the next

#: Machine of the account → the metric that counts its moves, its help, and the label that names the state reached.
_COUNTED: Mapping[str, tuple[str, str, str]] = {
    "status": ("keep_runs_total", "Runs that came to this status.", "status"),
    "mutation": ("keep_mutations_total", "Mutations that came to this outcome.", "outcome"),
    "event": ("keep_events_total", "Events that came to this status.", "status"),
    "input": ("keep_inputs_total", "Inputs that came to this status.", "status"),
}

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counts for one process. Not for several threads at once."""

    def __init__(self, read: OpenReader, host: str) -> None:
        self._host, self._next = host, account.head(read).seq + 1
        self._moves: Counter[tuple[str, str, str]] = Counter()  # by machine, workflow and target

    def text(self, read: OpenReader, views: Views, now_ms: int) -> str:
        """Everything, as one page."""
        with read.moment():
            self._catch_up(read)
            names = {str(row["id"]): str(row["name"]) for row in read.all("workflow_all")}
            return "".join(self._lines(read, views, now_ms, names))

    def _catch_up(self, read: OpenReader) -> None:
        last = min(account.head(read).seq, self._next + _AT_ONCE - 1)
        for move in account.walk(read, self._next) if self._next <= last else ():
            if move["seq"] > last:
                break
            if move["host"] == self._host and move["machine"] in _COUNTED:
                self._moves[move["machine"], move["workflow_id"], move["target"]] += 1
        self._next = last + 1

    def _lines(self, read: OpenReader, views: Views, now_ms: int, names: Mapping[str, str]) -> Iterator[str]:
        for machine, (metric, told, label) in _COUNTED.items():
            yield from _metric(metric, "counter", told, (
                ((("workflow", names.get(workflow, workflow)), (label, target)), float(number))
                for (of, workflow, target), number in sorted(self._moves.items()) if of == machine))
        workflows, asked = views.workflows(now_ms), views.needs_you(now_ms)
        yield from _gauge("keep_workflows", "Workflows, by their status.", Counter(
            (("status", str(each.status)),) for each in workflows))
        yield from _gauge("keep_pending_events", "Events that wait to be processed.", {
            (("workflow", each.name),): each.pending for each in workflows})
        yield from _gauge("keep_parked_runs", "Runs that wait for a person while others go on.", {
            (("workflow", each.name),): len(each.parked) for each in workflows})
        lags: dict[Labels, float] = {(("workflow", name),): 0.0 for name in names.values()}
        for row in read.all("look_oldest_waiting"):
            key: Labels = (("workflow", names[row["workflow_id"]]),)
            lags[key] = max(lags[key], _seconds(now_ms, row["since"]))
        yield from _gauge("keep_lag_seconds", "How long the oldest event waits.", lags)
        yield from _gauge("keep_questions", "Questions that wait for a person.", Counter(
            (("kind", each.kind),) for each in asked))
        ages: dict[Labels, float] = {}
        for each in asked:
            of_kind, age = (("kind", each.kind),), _seconds(now_ms, views.run(each.run_id).updated_at)
            ages[of_kind] = max(age, ages.get(of_kind, 0.0))
        yield from _gauge("keep_oldest_question_seconds", "How long the oldest question waits.", ages)
        yield from _gauge("keep_hosts", "Hosts that are there.", {(): sum(each.lives for each in read.hosts()) or 1})
        yield from _gauge("keep_ledger_bytes", "What the ledger takes on disk.", {(): read.bytes()})


def _seconds(now_ms: int, since_ms: int | None) -> float:
    return 0.0 if since_ms is None else max(0, now_ms - since_ms) / 1000


def _gauge(name: str, told: str, values: Mapping[Labels, float]) -> Iterator[str]:
    return _metric(name, "gauge", told, sorted(values.items()))


def _metric(name: str, kind: str, told: str, values: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP {name} {told}\n# TYPE {name} {kind}\n"
    for labels, value in values:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        yield f"{name}{{{shown}}} {value:.15g}\n" if shown else f"{name} {value:.15g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
