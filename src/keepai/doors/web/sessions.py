"""Who may come in: a token that works once, or a password, becomes a session that lives as long as this process.

Nothing of this is on disk. Secrets are compared in constant time.

`PasswordTries` makes guessing a password slow and never locks out a person with the right one. A try waits before it is
checked. How long depends only on the wrong tries of its own address, and has a bound: while others guess, the right
password still works, and a wrong try from one address delays no other address.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ...model.principals import OWNER, Principal
from ..connections import network_of

SESSIONS_MAX = 32  #: the oldest one ends when one more begins
NOTES_MAX = 8  #: of a session, that no page has shown yet


@dataclass(frozen=True)
class ActNote:
    """What became of an act, to be shown on the next page."""

    kind: str  # "done" or "refused"
    text: str


@dataclass(frozen=True)
class BrowserSession:
    """One browser that is signed in."""

    csrf: str = field(repr=False)
    principal: Principal = OWNER  # who is signed in; their role decides which acts there are
    notes: deque[ActNote] = field(default_factory=lambda: deque(maxlen=NOTES_MAX))

    def take_notes(self) -> list[ActNote]:
        """The notes that were not shown yet; from now on they count as shown."""
        taken = list(self.notes)
        self.notes.clear()
        return taken


@dataclass(frozen=True)
class HandedSession:
    """The session of a host that a parent starts again and again: each host gets the same one."""

    label: str = field(repr=False)
    cookie: str = field(repr=False)
    csrf: str = field(repr=False)

    @classmethod
    def new(cls) -> HandedSession:
        """A new session."""
        return cls(new_label(), secrets.token_urlsafe(32), secrets.token_urlsafe(24))

    @classmethod
    def of(cls, text: str) -> HandedSession:
        """From `text`."""
        label, cookie, csrf = text.split()
        return cls(label, cookie, csrf)

    @property
    def text(self) -> str:
        """For an environment variable."""
        return f"{self.label} {self.cookie} {self.csrf}"


def new_label() -> str:
    """A random text that cannot be guessed, in letters that a network name may have."""
    return secrets.token_hex(16)


class Sessions:
    """Keeps the sessions; `time` is a clock that only grows, in seconds."""

    def __init__(
        self, password: str | None, time: Callable[[], float], handed: HandedSession | None = None,
        principal: Principal = OWNER,
    ) -> None:
        self._handed, self._principal = handed, principal
        #: The first part of the page's own name, and a part of its cookie's name; new at each start.
        self.label = handed.label if handed else new_label()
        self._password = _hash(password) if password else None
        self._token: str | None = None
        self._sessions: dict[str, BrowserSession] = (
            {handed.cookie: BrowserSession(handed.csrf, principal)} if handed else {})
        self.tries = PasswordTries(time)  #: of the password
        self.csrf = secrets.token_urlsafe(24)  #: for the one form that stands before a session: signing in

    @property
    def has_password(self) -> bool:
        """Whether people sign in with a password; then there is no token."""
        return self._password is not None

    def token(self) -> str:
        """A new token; the one before no longer works."""
        self._token = secrets.token_urlsafe(24)
        return self._token

    def fits(self, given: str) -> bool:
        """Whether this is the password, or without one the token, which is not spent yet."""
        if self._password is not None:
            return hmac.compare_digest(_hash(given), self._password)
        return self._token is not None and same(given, self._token)

    def enter(self, given: str) -> str | None:
        """A new session's cookie for the right password, or for the right token, which is then spent."""
        if not self.fits(given):
            return None
        self._token = None
        return self._begin()

    def session(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie."""
        found = None
        for known, session in self._sessions.items():
            if same(cookie, known):
                found = session
        return found

    def leave(self, session: BrowserSession) -> None:
        """End a session."""
        self._sessions = {cookie: each for cookie, each in self._sessions.items() if each is not session}

    def _begin(self) -> str:
        if self._handed:
            return self._handed.cookie
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[cookie] = BrowserSession(secrets.token_urlsafe(24), self._principal)
        return cookie


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def same(given: str, wanted: str) -> bool:
    """Whether two texts are the same. The time that it takes does not show how many letters are."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


# -- guessing -----------------------------------------------------------------------------------------


FREE = 3  #: wrong tries that cost nothing: people mistype
FIRST_S, LONGEST_S = 1.0, 8.0  #: each further one doubles the wait
FORGET_S = 900.0  #: after which wrong tries no longer count
WAITING_MAX = 8  #: tries of one address; one more ends the wait of the oldest, which is not judged
ADDRESSES_MAX = 1_000  #: addresses; one more, and the one that tried longest ago is forgotten


@dataclass
class _Sender:
    wrong: int = 0
    last: float = 0.0
    waiting: list[asyncio.Event] = field(default_factory=list)


class PasswordTries:
    """Counts; `time` is a clock that only grows, in seconds. `wait` waits for an event, at most for seconds."""

    def __init__(
        self, time: Callable[[], float], wait: Callable[[asyncio.Event, float], Awaitable[None]] | None = None,
    ) -> None:
        self._time, self._wait = time, wait or _wait
        self._senders: OrderedDict[str, _Sender] = OrderedDict()

    async def turn(self, host: str) -> bool:
        """Wait until a try from this address may be judged; False if newer ones took its place."""
        sender = self._sender(host)
        wrong = sender.wrong + len(sender.waiting)
        if wrong < FREE:
            return True
        wait_s = min(FIRST_S * 2.0 ** min(wrong - FREE, 16), LONGEST_S)
        given_up = asyncio.Event()
        sender.waiting.append(given_up)
        if len(sender.waiting) > WAITING_MAX:
            sender.waiting.pop(0).set()
        await self._wait(given_up, wait_s)
        if given_up.is_set():
            return False
        sender.waiting.remove(given_up)
        return True

    def judged(self, host: str, is_right: bool) -> None:
        """What became of a try."""
        sender = self._sender(host)
        sender.wrong, sender.last = 0 if is_right else sender.wrong + 1, self._time()

    def _sender(self, host: str) -> _Sender:
        network = network_of(host)
        found = self._senders.setdefault(network, _Sender(last=self._time()))
        self._senders.move_to_end(network)
        while len(self._senders) > ADDRESSES_MAX:
            self._senders.popitem(last=False)
        if self._time() - found.last > FORGET_S:
            found.wrong = 0
        return found


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
