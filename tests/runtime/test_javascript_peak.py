"""What a worker sends takes a bounded part of the host's memory, however it lies."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.runtime.script_world import LIMITS

#: What is said → how many times the message limit the host's memory may grow, and what comes of it. A JSON text of
#: brackets alone takes some 25 times its own size once it is read.
CASES = {
    "a length of 4 GiB": (0.5, "broke the protocol"),
    "one byte more than allowed": (0.5, "broke the protocol"),
    "the largest frame, of nothing but brackets": (5, "broke the protocol"),
    "the largest call": (35, "under way"),
    "sixty-four of the largest calls at once": (65, "broke the protocol"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("said", CASES)
def test_what_a_worker_sends_takes_a_bounded_part_of_the_hosts_memory(said: str) -> None:
    times, outcome = CASES[said]
    calls = "64" if "sixty-four" in said else "1"
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.peak", said, calls], check=False, capture_output=True, text=True,
        timeout=120, env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    grown, _, came = done.stdout.partition(" ")
    assert outcome in came
    assert int(grown) < times * LIMITS.message_bytes_max, f"{int(grown) / LIMITS.message_bytes_max:.1f} times"
