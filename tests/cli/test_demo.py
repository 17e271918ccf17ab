"""`keep demo`, from beginning to end."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from .conftest import COMMAND, Place


def play(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "demo", *args], capture_output=True, text=True, timeout=120, env={**os.environ, **env}, check=False,
    )


def test_the_demo_kills_its_host_twice_loses_and_doubles_nothing_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = play(TMPDIR=folder, KEEP_DB="/nowhere/at/all.db")
        assert done.returncode == 0, done.stdout + done.stderr
        assert os.listdir(folder) == []
    assert done.stdout.count("was killed by signal 9") == 2
    assert "The sheet has 3 rows. The ledger is sure of 2" in done.stdout
    assert "in_flight → needs_reconcile → applied" in done.stdout
    assert "in_flight → needs_reconcile → failed" in done.stdout
    assert "5 e-mails, 5 rows, each exactly once." in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_demo_leaves_its_folder_if_told_so(place: Place) -> None:
    done = play("--keep", "here", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ok"], result["rows"], result["times"]) == (True, 5, [1, 1, 1, 1, 1])
    assert (Path("here") / "keep.db").exists()
    assert len(place.json("--config", "here/keep.toml", "inputs", "email-to-sheets")) == 5
    again = play("--keep", "here")
    assert again.returncode == 2
    assert "it exists already" in again.stderr
