"""While `keep dev` runs: a script that is saved in its folder becomes the new version of its workflow.

This holds only for workflows that are already deployed. A person deploys a new workflow, and grants what a script newly
asks for, by hand or in keep.toml. A script with errors is not deployed: its findings are printed, and the version
before stays active. A file that differs from the active version when Keep starts is named once and not deployed,
because it may be older. Once an agent is registered, a script that is saved is proposed, and a person accepts it or
not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ...app import Keep
from ...config import Settings
from ...engine.tokens_and_pins import has_agents
from ...model.errors import Finding, KeepError, ScriptInvalid
from ...script.check import check
from .. import control
from .script_commands import deploy_lines
from .script_files import cases_of, finding_line
from .text import plain, say

POLL_S = 0.5
FILES_MAX = 200
BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class _ScriptFile:
    """A script as it was last read; one that declares no workflow has no name."""

    stamp: tuple[int, int]  # time and size, to see that it was saved
    text: str
    name: str | None


class AutoDeploy:
    """Watches while it is entered."""

    def __init__(self, keep: Keep, settings: Settings) -> None:
        self._keep, self._grants = keep, dict(settings.grants)
        self._folder = settings.file.parent if settings.file else Path()
        self._seen: dict[Path, _ScriptFile] = {}

    async def __aenter__(self) -> AutoDeploy:
        for path, seen in await asyncio.to_thread(self._changed):
            self._seen[path] = seen
            await self._tell_difference(path, seen)
        self._watching = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None,
    ) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            for path, seen in await asyncio.to_thread(self._changed):
                before = self._seen.get(path)
                self._seen[path] = seen
                if before is None or seen.text != before.text:
                    await self._take(path, seen, before)

    def _changed(self) -> list[tuple[Path, _ScriptFile]]:
        """Scripts that were saved since they were last read."""
        return [(path, seen) for path in sorted(self._folder.glob("*.js"))[:FILES_MAX] for seen in self._read(path)]

    def _read(self, path: Path) -> Iterator[_ScriptFile]:
        known = self._seen.get(path)
        with suppress(OSError, UnicodeDecodeError):  # it is being saved, or is no text: the next look sees it whole
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if (known is None or known.stamp != stamp) and found.st_size <= BYTES_MAX:
                text = path.read_bytes().decode("utf-8")
                manifest = check(text, None).manifest
                yield _ScriptFile(stamp, text, manifest.name if manifest else None)

    async def _take(self, path: Path, seen: _ScriptFile, before: _ScriptFile | None) -> None:
        name = seen.name or (before.name if before else None)
        if name is None or not seen.text.strip():
            return  # no workflow, or a save that is not finished
        if await self._active(name) is None:
            say(f"{path.name}: the workflow {plain(name)} is not deployed yet. Type: keep deploy {path.name}")
            return
        agents = await self._keep.parts.ledger.look(has_agents)  # whoever saved it may be one
        try:
            await (self._propose(path, seen.text) if agents else self._deploy(path, seen.text))
        except ScriptInvalid as error:
            for finding in error.findings:
                say(finding_line(path.name, finding))
            say(f"{path.name} was saved with errors and not deployed: version {await self._active(name)} goes on.")
        except KeepError as error:
            say(f"{path.name} was saved and not deployed: {plain(error.message)}")

    async def _deploy(self, path: Path, text: str) -> None:
        done = await control.perform(self._keep, "deploy", {
            "source": text, "configured": self._grants, "cases": cases_of(str(path))})
        if done["changed"]:
            findings = [finding_line(path.name, Finding(**each)) for each in done["findings"]]
            say("\n".join([*findings, *deploy_lines(done)]))

    async def _propose(self, path: Path, text: str) -> None:
        made = await control.perform(self._keep, "propose", {
            "source": text, "cases": cases_of(str(path)), "why": f"{path.name} was saved in the folder of `keep dev`."})
        say(f"{path.name} was saved and is proposed as {made['id']}: agents are registered here, so a person decides. "
            f"Type: keep accept {made['id']}")

    async def _tell_difference(self, path: Path, seen: _ScriptFile) -> None:
        version = await self._active(seen.name) if seen.name else None
        if seen.name and version and await self._source(seen.name) != seen.text:
            say(f"{path.name} is not version {version} of {plain(seen.name)}, which is active. "
                f"Type: keep deploy {path.name}, or save it once more.")

    async def _active(self, name: str) -> str | None:
        """The active version of a workflow; None if it is not deployed."""
        row = await self._keep.parts.ledger.one("workflow_by_name", name=name)
        return f"{row['major']}.{row['minor']}" if row else None

    async def _source(self, name: str) -> str:
        ledger = self._keep.parts.ledger
        row = await ledger.one("workflow_by_name", name=name)
        assert row is not None, f"{name} is deployed"
        script = await ledger.one("script_get", workflow_id=row["id"], major=row["major"], minor=row["minor"])
        assert script is not None, "a workflow has the version that is active"
        return str(script["source"])


