"""Calls to an MCP server that loses answers, dies and works late: how many notes exist twice, with Keep and without.

`python -m tests.connectors.mcp_repeats --calls 500` prints both figures. Without Keep it is the MCP SDK's own client,
used as programs mostly use it: what fails is sent again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from keepai import Policy
from tests.connectors import mcp_server
from tests.connectors.mcp_subjects import RULE, program
from tests.harness import Story, acting

FAULTS = "each:,,answer_lost,,,handed_on,,request_lost,,,isError,,input_required"
ATTEMPTS_MAX = 5


@dataclass(frozen=True)
class Figure:
    """What one way of calling left behind."""

    calls: int
    missing: int
    doubled: int

    @classmethod
    def of(cls, folder: Path, calls: int) -> Figure:
        """Counted at the server."""
        found = Counter(note["text"] for note in mcp_server.notes(folder))
        return cls(calls, calls - len(found), sum(count > 1 for count in found.values()))


async def with_keep(folder: Path, calls: int) -> Figure:
    """A workflow that adds one note for each input."""
    (folder / "fault").write_text(FAULTS)
    connector = program(folder, lookup=[dict(RULE)])
    script = acting("await ctx.notes.addNote({ text: prepared.data.messageId });")
    async with Story(folder, connectors=[connector], policy=Policy(retries_max=20)) as story:
        for number in range(calls):
            story.feed.put(f"note-{number}")
        await story.deploy(script, grants={"all": "allow", "notes.addNote": "allow"})
        for _ in range(3 * calls):
            await story.run(minutes=2)
            if len({note["text"] for note in mcp_server.notes(folder)}) == calls:
                break
        await story.run(minutes=10)
    return Figure.of(folder, calls)


async def without_keep(folder: Path, calls: int) -> Figure:
    """The SDK's client in a loop that tries again."""
    from mcp import Client, StdioServerParameters

    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    (folder / "fault").write_text(FAULTS)
    server = StdioServerParameters(command=sys.executable, args=["-S", mcp_server.__file__, str(folder)])

    async def send(text: str) -> bool:
        try:
            async with Client(server) as client:
                return not (await client.call_tool("add_note", {"text": text})).is_error
        except Exception:  # whatever it is, such a loop sends again
            return False

    for number in range(calls):
        for _ in range(ATTEMPTS_MAX):
            if await send(f"note-{number}"):
                break
    mcp_server.land(folder)
    return Figure.of(folder, calls)


def main() -> int:
    """Print both figures; 1 if Keep doubled or lost one."""
    parser = argparse.ArgumentParser(prog="python -m tests.connectors.mcp_repeats", description=__doc__)
    parser.add_argument("--calls", type=int, default=500)
    calls = parser.parse_args().calls
    figures = []
    for name, way in (("with Keep", with_keep), ("without Keep", without_keep)):
        with tempfile.TemporaryDirectory(prefix="keep-mcp-") as folder:
            figures.append(asyncio.run(way(Path(folder), calls)))
        last = figures[-1]
        print(f"{name}: {last.calls} calls, {last.doubled} doubled, {last.missing} missing", flush=True)
    return int(figures[0].doubled > 0 or figures[0].missing > 0)


if __name__ == "__main__":
    sys.exit(main())
