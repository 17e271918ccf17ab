"""Counts the functions of Keep that one event passes, from the connector to the page, and prints them by room.

    python bench/functions.py [--list] [--page PATH]

A producer polls and publishes one event, and a consumer takes it by prepare, mutate and next: that is the run. Then
somebody asks for the page of its input. Some events go through before, so that starting and first times do not count;
then those functions count that each of twenty events passes. A function counts once, however often it is entered, if it
stands in `src/keepai` and runs in the host's process, in whatever thread. What `dataclass` writes does not count, nor
templates, nor the inside of a function (comprehensions, lambdas), nor what the sandbox's workers do in their own
processes.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from keep_side import SCRIPT, Mail, Sheets

import keepai
from keepai import Keep
from keepai.config import Settings
from keepai.doors.web.page_server import PageServer

HOME = f"{Path(keepai.__file__).parent}/"
BEFORE, COUNTED = 5, 20  #: events that go through first, and that are counted


class Entered:
    """The functions of Keep that are entered while it counts, in every thread that starts after it."""

    def __init__(self) -> None:
        self._codes: set[CodeType] | None = None
        sys.setprofile(self._called)
        threading.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self._codes is not None:
            self._codes.add(frame.f_code)

    def begin(self) -> None:
        """Count from now on."""
        self._codes = set()

    def end(self) -> set[str]:
        """`room/file.py: function` of each."""
        found, self._codes = self._codes or set(), None
        ours = [code for code in found if code.co_filename.startswith(HOME) and code.co_filename.endswith(".py")]
        return {f"{code.co_filename.removeprefix(HOME)}: {code.co_qualname}" for code in ours if code.co_name[0] != "<"}


async def one_event(folder: Path, page: str) -> tuple[set[str], set[str]]:
    """The functions of a run, and those of `page`, an address with {id} for the input and {wf} for the workflow."""
    entered, box, sheets = Entered(), Mail(), Sheets()
    runs, pages = [], []
    async with Keep(folder / "keep.db", connectors=[box, sheets]) as keep:
        wf = (await keep.deploy(SCRIPT.replace("NAME", "counted"), grants="all")).workflow_id
        for _ in range(BEFORE + COUNTED):
            box.count += 1
            await keep.run_now(wf)
            entered.begin()
            await keep.run_until_idle()
            runs.append(entered.end())
        assert len(sheets.rows) == box.count, f"{len(sheets.rows)} of {box.count} events were taken"
        async with PageServer(keep, Settings(ledger=folder / "keep.db"), port=0) as web:
            signed_in = await _asked(web, web.address().removeprefix(web.origin))
            cookie = str(signed_in.getheader("set-cookie")).partition(";")[0]
            for each in await keep.inputs(wf):
                entered.begin()
                shown = await _asked(web, page.format(id=each.id, wf=wf), cookie)
                pages.append(entered.end())
                assert shown.status == 200, f"{page}: {shown.status}"
    return set.intersection(*runs[BEFORE:]), set.intersection(*pages[BEFORE:])


async def _asked(web: PageServer, path: str, cookie: str = "") -> http.client.HTTPResponse:
    """What the page's server answers, read whole."""

    def ask() -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
        connection.request("GET", path, headers={"Host": web.origin.removeprefix("http://"), "Cookie": cookie})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    return await asyncio.to_thread(ask)


def main() -> None:
    """Count, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--list", action="store_true", help="print every function")
    options.add_argument("--page", default="/inputs/{id}", help="the page that shows it; without, its input's")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run, page = asyncio.run(one_event(Path(folder), given.page))
    if given.list:
        print("\n".join(sorted(run | page)), end="\n\n")
    print("  run   page   both")
    counts = [Counter(map(_room, each)) for each in (run, page, run | page)]
    for room, _ in counts[2].most_common():
        print("".join(f"{each[room]:5}  " for each in counts) + room)
    files = len({each.partition(":")[0] for each in run | page})
    print("".join(f"{each.total():5}  " for each in counts) + f"functions, in {files} files")


def _room(function: str) -> str:
    file = function.partition(":")[0]
    return file.partition("/")[0]


if __name__ == "__main__":
    main()
