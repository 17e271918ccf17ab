"""How somebody proves who they are: an agent or a user by a token, whoever types at the terminal by the PIN.

The ledger keeps only hashes. A token is too long to be guessed, so a fast hash will do, and finds it. A PIN is short:
its hash is slow and salted, and after a few wrong tries each further one waits. The host judges, never a command.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable

from ..ledger.base import Reader
from ..model.errors import Refused
from ..model.principals import LET_IN, OWNER, Principal, PrincipalKind, Role

PIN_LEAST = 6  #: characters
PIN_MOST = 200
FREE = 5  #: wrong tries that cost nothing: people mistype
FIRST_S, LONGEST_S = 30.0, 900.0  #: each further one doubles the time in which none is judged
_COST = {"n": 1 << 14, "r": 8, "p": 1}  #: 16 MiB and some 50 ms for one try


def new_token(kind: PrincipalKind) -> str:
    """A token for an agent or a user; its beginning tells programs that search for secrets what it is."""
    return f"keep_{LET_IN[kind]}_{secrets.token_urlsafe(32)}"


def token_hash(token: str) -> str:
    """What the ledger keeps of a token."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def pin_hash(pin: str, salt: bytes | None = None) -> str:
    """What the ledger keeps of a PIN."""
    if not PIN_LEAST <= len(pin) <= PIN_MOST:
        raise Refused(f"A PIN has {PIN_LEAST} to {PIN_MOST} characters, and this one has {len(pin)}. Nothing was kept.")
    salt = salt or secrets.token_bytes(16)
    made = hashlib.scrypt(pin.encode("utf-8", "surrogatepass"), salt=salt, **_COST)
    return f"scrypt:{salt.hex()}:{made.hex()}"


def is_pin(pin: str, kept: str) -> bool:
    """Whether a hash is that of a PIN."""
    salt = bytes.fromhex(kept.split(":")[1])
    return PIN_LEAST <= len(pin) <= PIN_MOST and hmac.compare_digest(pin_hash(pin, salt), kept)


def principal_of(read: Reader, token: str) -> Principal | None:
    """The agent or the user that has a token; None if nobody here has it, or no longer."""
    row = read.one("principal_of_secret", secret=token_hash(token))
    return None if row is None else Principal(PrincipalKind(row["kind"]), row["name"], Role(row["role"]))


def agent_of(read: Reader, token: str) -> Principal | None:
    """The agent that has a token; a user comes in by other doors."""
    found = principal_of(read, token)
    return found if found is not None and found.kind is PrincipalKind.AGENT else None


def has_agents(read: Reader) -> bool:
    """Whether an agent has a token: then a person must show that they are one."""
    return read.one("principal_any_agent") is not None


def pin_kept(read: Reader) -> str | None:
    """The hash of the PIN, if there is one."""
    row = read.one("principal_get", kind=str(OWNER.kind), name=OWNER.name)
    return str(row["secret"]) if row is not None else None


class PinTries:
    """Judges PINs one at a time, and makes guessing slow; `time` is a clock that only grows, in seconds."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time, self._wrong, self._closed_until = time, 0, 0.0
        self._one = asyncio.Lock()

    async def judge(self, pin: str, kept: str) -> None:
        """Refuse a PIN that is wrong, and any while too many wrong ones were tried."""
        async with self._one:
            wait_s = self._closed_until - self._time()
            if wait_s > 0:
                raise Refused(f"Too many wrong PINs were tried. The next one is judged in {wait_s:.0f} s. Nothing was "
                              "done. A browser that is signed in to the page may act.")
            if await asyncio.to_thread(is_pin, pin, kept):
                self._wrong = 0
                return
            self._wrong += 1
            if self._wrong >= FREE:
                self._closed_until = self._time() + min(FIRST_S * 2.0 ** (self._wrong - FREE), LONGEST_S)
            raise Refused("That is not the PIN. Nothing was done.")
