"""The benchmark: its page says what its results say, and each of Keep's measurements does the work that it counts.

What is measured is not judged here; a machine that runs tests is no place for that.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from keepai.ledger.sqlite.store import SqliteLedger
from tests import postgres

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
FUNCTIONS_MAX = 360  #: that one event passes, from the connector to its last commit
FOUND: dict[str, Any] = json.loads((BENCH / "results.json").read_text("utf-8"))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one of the benchmark's programs, which find each other as neighbours."""
    monkeypatch.syspath_prepend(str(BENCH))

    def program(name: str) -> ModuleType:
        return import_module(name)

    return program


# The page


def test_the_page_and_its_pictures_say_what_the_results_say(bench: Any) -> None:
    plots = bench("plots")
    page = (ROOT / "docs/performance.md").read_text("utf-8")
    assert plots.filled(page, FOUND) == page, "run `python bench/plots.py bench/results.json`"
    for name, drawn in plots.pictures(FOUND):
        assert (ROOT / "docs/images" / name).read_text("utf-8") == drawn, name
        assert f"(images/{name})" in page


def test_only_what_stands_between_the_markers_is_written(bench: Any) -> None:
    plots = bench("plots")
    names = list(plots.pieces(FOUND))
    page = "before\n" + "".join(f"<!-- bench:{n} -->\nold {n}\n<!-- /bench:{n} -->\nafter {n}\n" for n in names)
    written = plots.filled(page, FOUND)
    assert written.startswith("before\n")
    assert all(f"after {name}\n" in written and f"old {name}\n" not in written for name in names)
    assert plots.filled(written, FOUND) == written


def test_a_page_without_a_place_for_a_piece_is_refused(bench: Any) -> None:
    plots = bench("plots")
    page = "".join(f"<!-- bench:{name} -->\n<!-- /bench:{name} -->\n" for name in plots.pieces(FOUND))
    with pytest.raises(SystemExit, match="has markers for"):
        plots.filled(page.replace("bench:table", "bench:tables"), FOUND)
    with pytest.raises(SystemExit, match="bench:table is not closed"):
        plots.filled(page.replace("/bench:table", "/bench:other"), FOUND)


def test_a_row_has_the_median_of_the_rounds_their_spread_and_the_ratio_of_the_medians(bench: Any) -> None:
    sides = {"keep": {"runs_per_s": [10.0, 30.0, 900.0]}, "dbos": {"runs_per_s": [20.0, 15.0, 1.0]}}
    rows = [row.cells for row in bench("table").summary({"runs": {"one": sides}})]
    assert rows == [
        ("runs/s, one at a time", "30.0 (10.0–900.0)", "15.0 (1.0–20.0)", "2.00×"),
        ("runs/s, whichever is faster", "30.0 (10.0–900.0)", "15.0 (1.0–20.0)", "2.00×"),
    ]


def test_dbos_as_it_comes_has_a_row_of_its_own(bench: Any) -> None:
    sides = {name: {"runs_per_s": [speed]} for name, speed in (("keep", 30.0), ("dbos", 15.0), ("plain", 10.0))}
    most = {"keep": {"fsyncs_per_run": [0.1]}}
    rows = [row.cells for row in bench("table").summary({"runs": {"one": sides, "most": most}})]
    assert rows[:3] == [
        ("runs/s, one at a time", "30.0", "15.0", "2.00×"),
        ("runs/s, one at a time; DBOS as it comes", "30.0", "10.0", "3.00×"),
        ("fsyncs per run, 64 at a time", "0.10", "–", ""),
    ]


def test_each_side_is_compared_in_the_way_in_which_it_is_faster(bench: Any) -> None:
    runs = {
        "one": {"keep": {"runs_per_s": [10.0]}, "dbos": {"runs_per_s": [40.0]}},
        "many": {"keep": {"runs_per_s": [20.0]}, "dbos": {"runs_per_s": [5.0]}},
    }
    assert bench("table").summary({"runs": runs})[-1].cells == ("runs/s, whichever is faster", "20.0", "40.0", "0.50×")


def test_growth_is_told_as_the_time_of_a_run_against_the_smallest(bench: Any) -> None:
    sizes = {"1000": {"runs_per_s": [60.0]}, "1000000": {"runs_per_s": [40.0]}}
    rows = [row.cells for row in bench("table").summary({"events": sizes})]
    assert rows == [
        ("runs/s, 1,000 events in the file", "60.0", "", ""),
        ("runs/s, 1,000,000 events in the file", "40.0", "", "1.50× the time with 1,000"),
    ]


def test_dbos_gets_its_fastest_arrangement_that_survives_a_power_cut(bench: Any) -> None:
    tried = {"default": [50.0, 51.0], "wal": [40.0, 70.0], "wal-normal": [900.0]}
    found = {"trial": {"one": [{"how": {"journal": name}, "runs_per_s": runs} for name, runs in tried.items()]}}
    bench("compare").choose(found, "one")
    assert found["chosen"] == {"one": {"journal": "wal"}}
    assert found["plain"] == {"one": {"journal": "default"}}


def test_the_parts_of_a_run_are_all_of_its_cpu(bench: Any) -> None:
    costs, parts = FOUND["costs"], bench("plots").parts(FOUND)
    whole = sum(costs[who][kind] for who in ("host", "workers") for kind in ("user", "system"))
    assert sum(us for _, us in parts) == pytest.approx(whole * 1000)


# Keep's side


def ask(task: str, path: Path | str, program: str = "keep_side.py", **params: Any) -> dict[str, Any]:
    command = [sys.executable, str(BENCH / program), task, json.dumps({"path": str(path), **params})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if task == "pending":
        assert done.returncode == -9, done.stderr
        return {}
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_every_measurement_of_keep_counts_as_many_effects_as_there_were_events(tmp_path: Path) -> None:
    got = ask("runs", tmp_path / "runs.db", at_once=3, events=9, size=50)
    assert got["runs"] == 9
    assert 0 < got["pss_mb"] < got["peak_mb"]
    assert 0 < ask("fair", tmp_path / "fair.db", workflows=3, events=3)["last_first_part"] < 1
    assert ask("latency", tmp_path / "latency.db", events=1)["p50_ms"] > 0
    first, second = (ask("start", tmp_path / "start.db") for _ in range(2))
    assert first["at"] < second["at"]
    ask("pending", tmp_path / "left.db", events=12, workflows=4)
    ask("recover", tmp_path / "left.db", events=12)


@pytest.mark.slow
def test_a_file_can_be_grown_and_measured_again_and_again(tmp_path: Path) -> None:
    for events in (200, 300):
        ask("fill_up", tmp_path / "events.db", events=events)
        assert ask("filled", tmp_path / "events.db", events=3)["runs_per_s"] > 0
    for workflows in (1, 3):
        assert ask("beside", tmp_path / "workflows.db", workflows=workflows, events=3)["runs_per_s"] > 0
    assert ask("costs", tmp_path / "costs.db", "costs.py", events=3, rounds=1)["parts"]["SQLite"] > 0
    assert ask("parked", tmp_path / "parked", "parked.py", runs=3, parked=2, rounds=1)["parked"]["runs_per_s"] > 0


@pytest.mark.slow
def test_a_host_serves_until_all_hosts_together_have_had_their_effects_and_one_that_is_refused_says_so(
    tmp_path: Path,
) -> None:
    ledger, effects = tmp_path / "shared.db", tmp_path / "effects"
    effects.write_bytes(b"")
    ask("deployed", ledger, workflows=2)
    assert ask("host", ledger, each=2, effects=str(effects), wanted=4) == {"wanted": 4}
    assert effects.stat().st_size == 4 * 12
    assert ask("idle", ledger, seconds=0.1)["to"] > 0
    lock = SqliteLedger(ledger)
    try:
        assert "is in use by" in ask("host", ledger, each=2, effects=str(effects), wanted=4)["refused"]
    finally:
        asyncio.run(lock.close())


# PostgreSQL


@pytest.mark.skipif(postgres.binaries() is None, reason="no PostgreSQL")
def test_a_network_loses_nothing_and_its_trace_has_every_round_trip_statement_and_commit(
    bench: Any, tmp_path: Path,
) -> None:
    programs, trace, server = bench("compare_postgres"), tmp_path / "trace", postgres.shared()
    with programs.network(server.port, 0, trace) as port:
        with psycopg.connect(server.url(port), password=postgres.PASSWORD, autocommit=True) as connection:
            connection.execute("select 1")
            began = time.time()
            [(text,)] = connection.execute("select repeat('x', 9000000)").fetchall()
            connection.execute("begin; select 1; commit")
            with connection.pipeline():
                for _ in range(5):
                    connection.execute("select 1")
            ended = time.time()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url(port), user="nobody", password="wrong")
    assert text == "x" * 9_000_000
    assert programs.counted(trace, began, ended) == {"trip": 3, "statement": 7, "commit": 1}
    assert programs.counted(trace, ended, ended) == {}


@pytest.mark.skipif(postgres.binaries() is None, reason="no PostgreSQL")
def test_a_network_holds_up_each_direction_for_as_long_as_it_was_told(bench: Any) -> None:
    programs, server = bench("compare_postgres"), postgres.shared()
    with (
        programs.network(server.port, 20) as port,
        psycopg.connect(server.url(port), password=postgres.PASSWORD, autocommit=True) as connection,
    ):
        began = time.monotonic()
        connection.execute("select 1")
        assert time.monotonic() - began >= 0.04
        began = time.monotonic()
        with connection.pipeline():
            for _ in range(100):
                connection.execute("select 1")
        assert time.monotonic() - began < 100 * 0.04, "what waits together must not wait one after the other"


@pytest.mark.slow
@pytest.mark.skipif(postgres.binaries() is None, reason="no PostgreSQL")
def test_what_a_server_spends_on_a_run_is_told_apart_from_what_keep_spends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    server = postgres.shared()
    server.run("create database spent")
    got = ask("runs", server.url(database="spent"), at_once=2, events=6)
    assert got["runs"] == 6
    assert all(got[f"{name}_per_run"] > 0 for name in ("cpu_ms", "server_cpu_ms", "wal_bytes"))
    server.run("drop database spent")


def test_the_rows_of_several_hosts_say_how_many_came_in(bench: Any) -> None:
    hosts = {"1": {"runs_per_s": [10.0], "largest_part": [1]},
             "2": {"runs_per_s": [15.0], "largest_part": [0.6], "refused": ["it is in use"]}}
    rows = [row.cells for row in bench("compare_postgres").rows({"hosts": hosts})]
    assert rows == [
        ("runs/s, 32 workflows, 1 host on one ledger", "10.0", "", ""),
        ("runs/s, 32 workflows, 2 hosts on one ledger (1 refused)", "15.0", "", "1.50× one host"),
        ("  of these by the host that had most, %", "60", "", ""),
    ]


# The functions of one event


def test_one_event_passes_no_more_functions_than_it_did() -> None:
    command = [sys.executable, str(BENCH / "functions.py"), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    names, _, table = done.stdout.partition("\n\n")
    rooms = {name.partition("/")[0] for name in names.splitlines()}
    assert {"connectors", "engine", "ledger", "model", "runtime", "doors"} <= rooms
    run, page, both = map(int, table.splitlines()[-1].split()[:3])
    assert max(run, page) < both == len(names.splitlines())
    assert run <= FUNCTIONS_MAX, "lower it when it shrinks; `python bench/functions.py --list` names them"
