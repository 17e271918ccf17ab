"""How a host has a script tried: in a process of its own, because the trials kill hosts at places of the whole process.

`cli/certify_worker.py` is that process: it reads the script and its cases as JSON, and prints the Certification, or the
results of the cases alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from ..config import Settings
from ..engine.certificate import BrokenTrial, Certification, Certifier
from ..model.errors import Refused

SECONDS_MAX = 1_800.0


def by_process(settings: Settings) -> Certifier | None:
    """Tries scripts with the connectors of a keep.toml; None without one."""
    if settings.file is None:
        return None
    file = settings.file.resolve()

    async def tried(source: str, cases: str | None, script: str) -> Certification:
        return from_json(await _worked(file, "certify", source, cases, script))

    return tried


async def run_cases(file: Path, source: str, cases: str, script: str) -> list[dict[str, Any]]:
    """The results of a script's cases, with the connectors of the keep.toml `file`."""
    results: list[dict[str, Any]] = (await _worked(file, "test", source, cases, script))["results"]
    return results


async def _worked(file: Path, work: str, source: str, cases: str | None, script: str) -> dict[str, Any]:
    """What the process answers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "keepai.doors.cli.certify_worker", cwd=file.parent,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )
    asked = json.dumps({"work": work, "config": str(file), "source": source, "cases": cases, "script": script})
    try:
        async with asyncio.timeout(SECONDS_MAX):
            said, _ = await process.communicate(asked.encode())
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    answer: dict[str, Any] = (
        json.loads(said) if process.returncode == 0 else {"error": f"its process ended ({process.returncode})"})
    if "error" in answer:
        raise Refused(f"{script} could not be tried: {answer['error']}")
    return answer


def from_json(data: dict[str, Any]) -> Certification:
    """A certification as a process or a host gave it."""
    broken = tuple(BrokenTrial(**each) for each in data["broken"])
    listed = {name: tuple(data[name]) for name in ("asks", "unreached", "untried")}
    data = {name: value for name, value in data.items() if name != "passed"}
    return Certification(**{**data, **listed, "broken": broken})
