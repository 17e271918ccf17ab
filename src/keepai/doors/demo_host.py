"""`keep demo --ui`: a parent that keeps a host with its page alive, however often that is killed.

The parent owns the page's port, name and session, and hands them to each host it starts: a listener cannot be taken by
others meanwhile, and an open page goes on by itself. `python -m keepai.doors.demo_host` is the host.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from ..config import Settings, load
from ..model.errors import KeepError
from ..runtime.javascript import linux
from .cli.text import say
from .cli.wiring import make_connector
from .demo_folder import KEEP, SCRIPT, ForgetfulSheets, environment, furnish
from .dev_host import PagePlace, run_dev_host
from .web.demo_page import DemoPage
from .web.page_server import bind
from .web.sessions import HandedSession

SESSION, LISTENERS, ADDRESS = "KEEP_DEMO_SESSION", "KEEP_DEMO_LISTENERS", "KEEP_DEMO_ADDRESS"
LIVES_MAX = 1_000
ENDING_S = 0.5  #: in which a host ends by itself after Ctrl-C


def run_demo_page(folder: Path, address: str | None, port: int | None) -> None:
    """Show the living example in `folder` until Ctrl-C."""
    furnish(folder)
    _deploy(folder)
    listeners = bind(address, port)
    handed = {SESSION: HandedSession.new().text, ADDRESS: address or ""}
    with ExitStack() as opened, suppress(KeyboardInterrupt):  # the host says that it ends
        _keep_alive(folder, [opened.enter_context(each).fileno() for each in listeners], handed)


def _deploy(folder: Path) -> None:
    done = subprocess.run(
        [*KEEP, "deploy", SCRIPT, "--grant", "all"], cwd=folder, env=environment(), capture_output=True, text=True,
        check=False,
    )
    if done.returncode:
        raise KeepError(f"The example could not be deployed:\n{done.stderr}")


def _keep_alive(folder: Path, numbers: list[int], handed: Mapping[str, str]) -> None:
    """Start a host, and another one each time it was killed."""
    env = {**environment(), **handed, LISTENERS: " ".join(map(str, numbers))}
    command = [sys.executable, "-m", __name__]
    for _ in range(LIVES_MAX):
        host = subprocess.Popen(command, cwd=folder, env=env, pass_fds=numbers, stdin=subprocess.DEVNULL)
        try:
            code = host.wait()
        finally:
            _end(host)
        if code != -signal.SIGKILL:
            raise KeepError(f"The demo's host ended by itself with {code}. What it said stands above.")
        say(f"Process {host.pid} was killed by signal 9. Another one starts, and your page goes on by itself.")


def _end(host: subprocess.Popen[bytes]) -> None:
    """Let a host end; one that does not is killed, which it is made for."""
    if host.poll() is not None:
        return
    host.terminate()
    try:
        host.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        host.kill()
        host.wait()


# -- the host --------------------------------------------------------------------------------------


def main() -> None:
    """A host in this folder, with what its parent handed over."""
    if sys.platform == "linux":
        linux.die_with_parent()
    settings, sheets = _settings()
    listeners = [socket.socket(fileno=int(number)) for number in os.environ.pop(LISTENERS).split()]
    demo = DemoPage(Path.cwd(), sheets, listeners, HandedSession.of(os.environ.pop(SESSION)))
    page = PagePlace(os.environ.pop(ADDRESS) or None, demo=demo)
    asyncio.run(run_dev_host(settings, page, once=False, as_json=False))


def _settings() -> tuple[Settings, ForgetfulSheets]:
    """The settings of the folder, with a workbook that can lose an answer."""
    settings = load("keep.toml", make=make_connector)
    sheets = ForgetfulSheets("sheets", name="sheets")
    others = [each for each in settings.connectors if each.name != sheets.name]
    return replace(settings, connectors=(*others, sheets)), sheets


if __name__ == "__main__":
    main()
