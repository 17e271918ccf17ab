"""Signs a person in with a browser: shows the address, waits on loopback for the answer, and has it redeemed.

Everything else that comes to the port is refused, also an answer with another `state`, and the waiting goes on. The
pages are fixed texts. Neither the code nor the secret that it is redeemed for is printed anywhere.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from ...connectors.sign_in import Attempt, SignIn
from ...model.errors import Refused
from ..connections import Acceptor, ConnectionLimits, StreamProtocol, listening
from ..log_repeats import repeats_counted
from .text import plain, say

WAIT_S = 300.0  #: how long a person may take
REQUEST_S = 5.0  #: how long a browser may take to say what it wants; some connect and say nothing
REQUEST_MAX = 16 << 10
AT_ONCE_MAX = 16  #: connections
FIELDS_MAX = 32
NOTHING = "Nothing was written or stored."

_WORD = re.compile(r"[a-z_]{1,40}")
_GOT = "Keep has the answer. You can close this page; the rest is in the terminal."
_DENIED = "Keep was not allowed in. You can close this page."
_STRANGE = "This is no answer to the sign-in that Keep waits for."
_EMPTY = "There is nothing here."
_HEADERS = (
    "Content-Type: text/html; charset=utf-8", "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer", "Cache-Control: no-store", "Connection: close",
)


def sign_in(offer: SignIn, *, browser: bool) -> Mapping[str, str]:
    """The secrets that a sign-in earns; with `browser` its page is opened, where there is a screen."""
    try:
        return asyncio.run(_signed_in(offer, browser))
    except KeyboardInterrupt:
        raise Refused(f"Nobody signed in. {NOTHING} Say the same again to sign in, or bring a {offer.secret}: "
                      f"--secret {offer.secret}=SOURCE.") from None


async def _signed_in(offer: SignIn, browser: bool) -> Mapping[str, str]:
    answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    waiting = _Waiting(answer)
    listener = listening("127.0.0.1", 0)
    bounds = ConnectionLimits("The sign-in", AT_ONCE_MAX, AT_ONCE_MAX, REQUEST_S, 0, b"")
    acceptor = Acceptor([listener], bounds, lambda each: StreamProtocol(each, waiting.meet, b"\r\n\r\n", REQUEST_MAX))
    acceptor.start()
    try:
        attempt = Attempt(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        waiting.state = attempt.state
        _show(offer.address(attempt), browser)
        with repeats_counted(lambda text: say(plain(text))):
            async with asyncio.timeout(WAIT_S):
                said = await answer
    except TimeoutError:
        raise Refused(f"Nobody signed in within {WAIT_S / 60:g} minutes. {NOTHING} Say the same again.") from None
    finally:
        await acceptor.close()
    if "error" in said:
        raise Refused(_denial(said["error"]))
    return await offer.redeem(said["code"], attempt)


def _denial(word: str) -> str:
    if word == "access_denied":
        return f"The person at the browser did not allow it. {NOTHING}"
    return f"The sign-in ended with an error{f' ({word})' if _WORD.fullmatch(word) else ''}. {NOTHING}"


def _show(address: str, browser: bool) -> None:
    say(f"Open this address to sign in:\n{plain(address)}")
    if browser and has_screen(os.environ):
        # A process of its own: what browsers print must not stand among what this command prints.
        subprocess.Popen([sys.executable, "-m", "webbrowser", address], start_new_session=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    say(f"Waiting for the browser, at most {WAIT_S / 60:g} minutes; Ctrl-C ends it.")


def has_screen(environ: Mapping[str, str]) -> bool:
    """Whether a browser can show anything here."""
    return sys.platform == "darwin" or any(environ.get(each) for each in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


# -- the answer ------------------------------------------------------------------------------------


@dataclass
class _Waiting:
    """Answers every connection, until the answer of the sign-in has come."""

    answer: asyncio.Future[Mapping[str, str]]
    state: str = ""

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and say what it deserves; the answer counts also if its page cannot be sent."""
        said: Mapping[str, str] | None = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            status, page, said = self._judge(head.partition(b"\r\n")[0].decode("latin-1"))
            writer.write(_page(status, page))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        if said is not None and not self.answer.done():
            self.answer.set_result(said)

    def _judge(self, line: str) -> tuple[str, str, Mapping[str, str] | None]:
        """The status, the page, and the answer if it is the one that is waited for."""
        method, _, rest = line.partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        if method != "GET" or path != "/":
            return "404 Not Found", _EMPTY, None
        try:
            said = dict(parse_qsl(query, max_num_fields=FIELDS_MAX))
        except ValueError:
            said = {}
        if not self.state or not hmac.compare_digest(said.get("state", "").encode(), self.state.encode()):
            return "403 Forbidden", _STRANGE, None
        if "error" in said:
            return "200 OK", _DENIED, said
        return ("200 OK", _GOT, said) if "code" in said else ("400 Bad Request", _STRANGE, None)


def _page(status: str, text: str) -> bytes:
    body = f'<!doctype html>\n<html lang="en"><title>Keep</title>\n<p>{text}</p></html>\n'.encode()
    return "\r\n".join([f"HTTP/1.1 {status}", *_HEADERS, f"Content-Length: {len(body)}", "", ""]).encode() + body
