"""Every story once more, with the policy `speculate` off: what a host foresees must not matter to any of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.prove.base import Result

_S_MAX = 840.0  # for all of them; less than a suite may take


def run(seconds: float, first: int, only: str | None) -> Result:
    """Run all of them once, whatever the budget; `only` names one test."""
    result = Result("stories", "tests", note="speculate off")
    workers = [] if only else ["-n", str(os.cpu_count() or 1)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, only or "tests/stories"],
            env={**os.environ, "KEEP_SPECULATE": "off"}, capture_output=True, text=True, timeout=_S_MAX, check=False,
        )
    except subprocess.TimeoutExpired:
        result.broke("all", f"the stories did not end within {_S_MAX:,.0f} s")
        return result
    result.tried = sum(int(count) for count in re.findall(r"(\d+) (?:passed|failed|errors?)\b", done.stdout))
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    for name in failed:
        result.broke(name, "it fails with speculate off")
    if done.returncode and not failed:
        result.broke("all", f"pytest ended with exit code {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return result
