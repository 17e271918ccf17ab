"""How a host has a script tried: in a process of its own, because trials kill hosts at places of the whole process.

`cli/script_worker.py` is that process: it reads what is asked as JSON, and prints what came of it. What a script does
there reaches nobody: `certify` and `test` call nothing outside, `rehearse` reads and sends nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Settings
from ..engine.certificate import BrokenTrial, Certification
from ..model.errors import Finding, Refused, ScriptInvalid
from ..model.ledger_address import is_address

SECONDS_MAX = 1_800.0


@dataclass(frozen=True)
class ScriptProcess:
    """Tries scripts with the connectors of a keep.toml, and rehearses them on a copy of this ledger."""

    config: Path
    ledger: str

    @classmethod
    def of(cls, settings: Settings) -> ScriptProcess | None:
        """None without a keep.toml."""
        ledger = settings.ledger if is_address(settings.ledger) else Path(settings.ledger).resolve()
        return cls(settings.file.resolve(), str(ledger)) if settings.file else None

    async def certify(self, source: str, cases: str | None, script: str) -> Certification:
        """Every trial of a script."""
        found: dict[str, Any] = await self._tried("certify", script, source=source, cases=cases)
        return from_json(found)

    async def test(self, source: str, cases: str, script: str = "the script") -> list[Any]:
        """Its cases alone."""
        found: list[Any] = await self._tried("test", script, source=source, cases=cases)
        return found

    async def rehearse(self, source: str, script: str = "the script") -> dict[str, Any]:
        """What it would do now. It reads only what a person has granted its workflow."""
        found: dict[str, Any] = await self._tried("rehearse", script, source=source)
        return found

    async def _tried(self, what: str, script: str, **asked: Any) -> Any:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "keepai.doors.cli.script_worker", cwd=self.config.parent,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )
        question = json.dumps({
            "what": what, "config": str(self.config), "ledger": self.ledger, "script": script, **asked})
        try:
            async with asyncio.timeout(SECONDS_MAX):
                said, _ = await process.communicate(question.encode())
        except BaseException:
            if process.returncode is None:
                process.kill()
                await process.wait()
            raise
        answer: dict[str, Any] = (
            json.loads(said) if process.returncode == 0 else {"error": f"its process ended ({process.returncode})"})
        if "findings" in answer:
            raise ScriptInvalid([Finding(**each) for each in answer["findings"]])
        if "error" in answer:
            raise Refused(f"{script} could not be tried: {answer['error']}")
        return answer["result"]


def from_json(data: dict[str, Any]) -> Certification:
    """A certification as a process or a host gave it."""
    broken = tuple(BrokenTrial(**each) for each in data["broken"])
    listed = {name: tuple(data[name]) for name in ("asks", "unreached", "untried")}
    data = {name: value for name, value in data.items() if name != "passed"}
    return Certification(**{**data, **listed, "broken": broken})
