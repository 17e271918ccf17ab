"""A process that tries one script: reads it and its cases as JSON, prints the Certification as JSON.

The trials kill hosts at named places, which are those of the whole process. So a host that works has them run here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from ..config import Settings, load
from ..engine.certificate import BrokenTrial, Certification, Certifier
from ..model.errors import KeepError, Refused
from ..testing.certify.subject import try_script

SECONDS_MAX = 1_800.0


def by_process(settings: Settings) -> Certifier | None:
    """Tries scripts with the connectors of a keep.toml; None without one."""
    if settings.file is None:
        return None
    file = settings.file.resolve()

    async def tried(source: str, cases: str | None, script: str) -> Certification:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "keepai.doors.certify_process", cwd=file.parent, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )
        asked = json.dumps({"config": str(file), "source": source, "cases": cases, "script": script})
        try:
            async with asyncio.timeout(SECONDS_MAX):
                said, _ = await process.communicate(asked.encode())
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        answer = json.loads(said) if process.returncode == 0 else {"error": f"its process ended ({process.returncode})"}
        if "error" in answer:
            raise Refused(f"{script} could not be tried: {answer['error']}")
        return from_json(answer)

    return tried


def from_json(data: dict[str, Any]) -> Certification:
    """A certification as a process or a host gave it."""
    broken = tuple(BrokenTrial(**each) for each in data["broken"])
    listed = {name: tuple(data[name]) for name in ("asks", "unreached", "untried")}
    data = {name: value for name, value in data.items() if name != "passed"}
    return Certification(**{**data, **listed, "broken": broken})


def main() -> None:
    """Try the script that is asked for."""
    from .cli.wiring import make_connector

    asked = json.load(sys.stdin)
    try:
        settings = load(asked["config"], None, os.environ, make_connector)
        done = asyncio.run(try_script(
            asked["source"], asked["cases"], settings.connectors, settings.policy, Path(asked["config"]).parent,
            script=asked["script"]))
        answer = done.to_json()
    except KeepError as error:
        answer = {"error": error.message}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
