"""Runs a program of the owner, which gets each message as JSON on its standard input.

Its output is discarded. It gets none of Keep's own environment variables, and it is killed when its time is over.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from ..model.codec import encode
from ..model.errors import ConfigError
from .base import Channel, Message, Undelivered


class Command(Channel):
    """Runs a program with the message as JSON on its standard input; exit code 0 means that it was delivered.

    command: the program and its arguments, as a list of words; it runs in the folder of keep.toml
    """

    def __init__(self, command: list[str], name: str) -> None:
        super().__init__(name)
        if not command or not all(command):
            raise ConfigError(f'[notify.{name}] command must be a list of words, such as ["./tell"].')
        self._command = command

    async def send(self, message: Message) -> None:
        """Run it to its end. If it is cut off, kill it with everything that it started."""
        starting = asyncio.ensure_future(self._started())
        try:
            program = await asyncio.shield(starting)
            await program.communicate(encode(message.to_json()).encode())
        except BaseException:
            started = (await asyncio.wait({starting}))[0].pop()  # it may be cut off while the program starts
            if started.exception() is None:
                with suppress(ProcessLookupError):
                    os.killpg(started.result().pid, signal.SIGKILL)
                await started.result().wait()  # so that nothing is left when the loop ends
            raise
        if program.returncode:
            raise Undelivered(f"{self._command[0]} ended with code {program.returncode}.")

    async def _started(self) -> asyncio.subprocess.Process:
        quiet = asyncio.subprocess.DEVNULL
        own = {name: value for name, value in os.environ.items() if not name.startswith("KEEP_")}
        try:
            return await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=quiet, stderr=quiet, cwd=self.folder, env=own,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise Undelivered(f"{self._command[0]} cannot be run: {reason}.") from None
