"""The fork server: loads Python, wasmtime and the interpreter once, then forks a worker for each request.

Started by the runtime as `python -m keepai.runtime.javascript.fork_server <fd>`. It stays single-threaded, because
only then is forking safe. It reaps its dead children itself and reports them, so that a process id is never reused
while the runtime may still have that worker killed. It ends when the runtime's end of the socket closes.

Runtime → server:  F <number> (with a socket: fork a worker for it) · K <pid> (kill)
Server → runtime:  R (ready) · E <why> (cannot start) · P <number> <pid> (forked) · X <pid> <status> (ended)
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
from typing import NoReturn

from ...model.errors import KeepError
from . import cache
from .harden import prepare
from .image import build_image
from .instance import Image
from .wasm_engine import Engine, compiled_path
from .worker import serve


class Server:
    """One runtime's fork server."""

    def __init__(self, control: socket.socket, engine: Engine, image: Image, keep: frozenset[int]) -> None:
        self._control, self._engine, self._image, self._keep = control, engine, image, keep
        self._children: set[int] = set()
        self._buffer = b""

    def run(self) -> NoReturn:
        """Serve until the runtime is gone."""
        wake_in, wake_out = os.pipe()
        for end in (wake_in, wake_out):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(wake_in, selectors.EVENT_READ)
        self._say("R")
        while True:
            for key, _ in selector.select():
                if key.fileobj is self._control:
                    self._listen()
                else:
                    os.read(wake_in, 512)
            self._reap()

    def _listen(self) -> None:
        try:
            data, sockets, _, _ = socket.recv_fds(self._control, 4096, 8)
        except ConnectionResetError:  # the host ended without reading the last message
            self._end()
        if not data:
            self._end()
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._obey(line.decode("ascii"), sockets)

    def _obey(self, line: str, sockets: list[int]) -> None:
        verb, _, rest = line.partition(" ")
        if verb == "F" and sockets:
            self._fork(int(rest), sockets.pop(0))
        elif verb == "K" and int(rest) in self._children:
            os.kill(int(rest), signal.SIGKILL)

    def _fork(self, number: int, descriptor: int) -> None:
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            serve(socket.socket(fileno=descriptor), self._engine, self._image, self._keep)
        os.close(descriptor)
        self._children.add(child)
        self._say(f"P {number} {child}")

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._children.discard(ended[0])
                self._say(f"X {ended[0]} {os.waitstatus_to_exitcode(ended[1])}")

    def _say(self, line: str) -> None:
        try:
            self._control.sendall(line.encode("utf-8", "replace") + b"\n")
        except OSError:
            self._end()

    def _end(self) -> NoReturn:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)


def main() -> NoReturn:
    """Load everything, then serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    before = _open_descriptors()
    try:
        _compile_apart()
        engine = Engine()
        image = build_image(engine)
    except (KeepError, OSError) as error:
        control.sendall(f"E {error}\n".encode())
        raise SystemExit(1) from None
    # wasmtime maps fresh memories from the compiled file; workers must keep that descriptor.
    keep = frozenset(_open_descriptors() - before)
    prepare()
    gc.collect()
    gc.freeze()  # so that a child's collector does not touch, and thereby copy, every page
    Server(control, engine, image, keep).run()


def _compile_apart() -> None:
    """Fill the cache in a child: compiling in parallel leaves threads behind, and this process may have none."""
    if cache.trusted(compiled_path()):
        return
    child = os.fork()
    if child == 0:
        try:
            Engine(parallel=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _open_descriptors() -> set[int]:
    found = set()
    for descriptor in range(256):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            found.add(descriptor)
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the runtime decides
    main()
