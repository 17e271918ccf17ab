"""The other side of the benchmark: the same work in DBOS on SQLite or PostgreSQL, one measurement per process.

    .venv-bench/bin/python bench/dbos_side.py TASK '{"path": "x.sqlite", "journal": "wal", "way": "call", …}'

A workflow of three steps (prepare, mutate, next); the workflow's durable input is the event. It runs in an environment
of its own, without Keep. How DBOS is set up is a parameter of every task: `bench/compare.py` looks for the fastest.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import server_costs
import sqlalchemy
from dbos import DBOS
from work import Figures, Place, answer, mail, per_run, percentiles

ROWS: list[object] = []
HELD = threading.Event()  # while it is cleared, no step goes on
HELD.set()


@DBOS.step()
def prepare(event: dict[str, str]) -> dict[str, Any]:
    """Which event is taken, and what is done about it."""
    HELD.wait()
    return {"data": event, "ui": {"title": f"Add row for {event['from']}"}}


@DBOS.step()
def mutate(prepared: dict[str, Any]) -> dict[str, int]:
    """The one side effect: a list gets longer."""
    ROWS.append([prepared["data"]["from"], prepared["data"]["subject"]])
    return {"rowId": len(ROWS)}


@DBOS.step(name="next")
def following(prepared: dict[str, Any], result: dict[str, int]) -> dict[str, Any]:
    """The event that a run publishes."""
    return {"messageId": f"row:{prepared['data']['id']}", "payload": result}


@DBOS.workflow()
def file(event: dict[str, str]) -> dict[str, Any]:
    """One run."""
    prepared = prepare(event)
    return following(prepared, mutate(prepared))


# The same with a payload that no step returns; the workflow's own input is durable already.


@DBOS.step(name="prepare_small")
def prepare_small(event: dict[str, Any]) -> dict[str, Any]:
    """Which event is taken."""
    return {"id": event["id"], "ui": {"title": f"Add row for {event['id']}"}}


@DBOS.step(name="mutate_untouched")
def mutate_untouched(prepared: dict[str, Any]) -> dict[str, int]:
    """The side effect, made of the id alone."""
    ROWS.append([prepared["id"]])
    return {"rowId": len(ROWS)}


@DBOS.step(name="mutate_read")
def mutate_read(event: dict[str, Any]) -> dict[str, int]:
    """The side effect, made of two members of the payload."""
    ROWS.append([event["from"], event["subject"]])
    return {"rowId": len(ROWS)}


@DBOS.step(name="mutate_whole")
def mutate_whole(event: dict[str, Any]) -> dict[str, int]:
    """The side effect, made of all of the payload."""
    rows = event.get("rows")
    ROWS.append([event["from"], sum(row["amount"] for row in rows) if rows else len(event.get("body", ""))])
    return {"rowId": len(ROWS)}


@DBOS.step(name="next_small")
def next_small(prepared: dict[str, Any], result: dict[str, int]) -> dict[str, Any]:
    """The event that a run publishes."""
    return {"messageId": f"row:{prepared['id']}", "payload": result}


@DBOS.workflow()
def untouched(event: dict[str, Any]) -> dict[str, Any]:
    """One run that does not look at the payload."""
    prepared = prepare_small(event)
    return next_small(prepared, mutate_untouched(prepared))


@DBOS.workflow()
def read(event: dict[str, Any]) -> dict[str, Any]:
    """One run that reads the payload where it acts."""
    prepared = prepare_small(event)
    return next_small(prepared, mutate_read(event))


@DBOS.workflow()
def whole(event: dict[str, Any]) -> dict[str, Any]:
    """One run that reads all of the payload where it acts."""
    prepared = prepare_small(event)
    return next_small(prepared, mutate_whole(event))


USES = {"returned": file, "untouched": untouched, "read": read, "whole": whole}  #: what is done with the payload


def launch(path: Place, journal: str, pool: int | None, threads: int) -> None:
    """Start DBOS on a file; `journal` is as DBOS has it ("default"), or "wal", or "wal-normal", which syncs rarely.

    With PostgreSQL ("postgres") there is no journal to choose."""

    @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        if journal.startswith("wal"):
            connection.execute("pragma journal_mode = wal")
            connection.execute(f"pragma synchronous = {'normal' if journal == 'wal-normal' else 'full'}")

    config: dict[str, Any] = {
        "name": "bench", "system_database_url": address(path), "application_version": "bench",
        "log_level": "ERROR", "max_executor_threads": threads,
    }
    DBOS(config=config | ({"sys_db_pool_size": pool} if pool else {}))  # type: ignore[arg-type]
    DBOS.launch()


def _all(way: str, at_once: int, events: list[dict[str, Any]], use: str = "returned") -> None:
    """Run all of them, so many at a time, in one of the ways that DBOS offers."""
    work = USES[use]
    if way == "call" and at_once == 1:
        for event in events:
            work(event)
    elif way == "call":
        with ThreadPoolExecutor(at_once) as threads:
            list(threads.map(work, events))
    elif way == "start" and at_once == 1:
        for event in events:
            DBOS.start_workflow(work, event).get_result(polling_interval_sec=0.001)
    elif way == "start":
        _wait(DBOS.start_workflow(work, event) for event in events)
    else:
        _wait(DBOS.enqueue_workflow("bench", work, event) for event in events)


def _wait(handles: Any) -> None:
    for handle in list(handles):
        handle.get_result(polling_interval_sec=0.01)


def _runs(
    path: Place, at_once: int, events: int, journal: str, way: str, pool: int | None = None, size: int = 0,
    shape: str = "text", use: str = "returned",
) -> Figures:
    """Run so many events, so many at a time."""
    launch(path, journal, pool, at_once)
    if way == "queue":
        DBOS.register_queue("bench", worker_concurrency=at_once, polling_interval_sec=0.01)
        time.sleep(1.5)  # the manager of queues looks once a second for new ones
    _all(way, at_once, [mail(n) for n in range(10)])
    made = [mail(n, size, shape) for n in range(events)]
    before, cpu, wall, began = used(path), cpu_s(), time.time(), time.perf_counter()
    _all(way, at_once, made, use)
    took = time.perf_counter() - began
    cpu, ended, after = cpu_s() - cpu, time.time(), used(path)
    assert len(ROWS) == events + 10, f"{len(ROWS)} effects for {events} events"
    found = {
        "runs": events, "runs_per_s": events / took, "cpu_ms_per_run": cpu * 1000 / events,
        **per_run(before, after, events), "from": wall, "to": ended,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    DBOS.destroy()
    return found


def _latency(path: Place, at_once: int, events: int, journal: str, pool: int | None = None) -> Figures:
    """From the call of a workflow to its return, so many callers at a time."""
    launch(path, journal, pool, at_once)
    took: list[float] = []

    def one(event: dict[str, str]) -> None:
        began = time.perf_counter()
        file(event)
        took.append((time.perf_counter() - began) * 1000)

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(one, [mail(n) for n in range(events + at_once)]))
    DBOS.destroy()
    return percentiles(took[at_once:])


def _start(path: Place, journal: str, pool: int | None = None) -> Figures:
    """When the first run was done, by the wall clock."""
    launch(path, journal, pool, 1)
    file(mail(1))
    done = time.time()
    DBOS.destroy()
    return {"at": done}


def _pending(path: Place, events: int, journal: str, pool: int | None = None) -> Figures:
    """Start so many workflows, let none of them go on, and be killed."""
    HELD.clear()
    launch(path, journal, pool, 32)
    for number in range(events):
        DBOS.start_workflow(file, mail(number))
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _recover(path: Place, events: int, journal: str, pool: int | None = None) -> Figures:
    """When all that was left behind is done, by the wall clock."""
    launch(path, journal, pool, 32)
    while len(ROWS) < events:
        time.sleep(0.01)
    while DBOS.list_workflows(status="PENDING", limit=1, load_input=False, load_output=False):
        time.sleep(0.01)
    done = time.time()
    assert len(ROWS) == events, f"{len(ROWS)} effects for {events} events"
    DBOS.destroy()
    return {"at": done}


def address(path: Place) -> str:
    """As SQLAlchemy has it."""
    return path if isinstance(path, str) else f"sqlite:///{path}"


def used(path: Place) -> Figures:
    """Bytes of the database: the pages in the file and those in its log; of a server, what it has spent too."""
    if isinstance(path, str):
        return server_costs.spent(path)
    with sqlalchemy.create_engine(address(path)).connect() as connection:
        pages, each = (connection.exec_driver_sql(f"pragma {name}").scalar() for name in ("page_count", "page_size"))
    return {"bytes": int(pages or 0) * int(each or 0)}


def cpu_s() -> float:
    """CPU time of this process; DBOS has no other."""
    times = os.times()
    return times.user + times.system


TASKS = {each.__name__.removeprefix("_"): each for each in (_runs, _latency, _start, _pending, _recover)}

if __name__ == "__main__":
    answer(TASKS, sys.argv[1:])
