"""How secrets come in: typed unseen at a terminal, or from stdin, a file or a variable; never as a word of a command.

The words of a command are in the shell's history and in the list of processes. No error here repeats a secret.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from ...model.errors import ConfigError, PresenceNeeded
from ...model.redaction import CHARACTERS_LEAST
from ...vault.strength import BITS_LEAST, bits
from .text import say

SOURCES = "- (stdin), file:PATH or env:VARIABLE"


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()


def passphrase_prompt() -> Callable[[str, bool], str] | None:
    """Asks for a passphrase, once in the life of this process. None without a terminal."""
    if not at_terminal():
        return None
    asked: list[str] = []

    def ask(question: str, new: bool) -> str:
        if asked:  # a host must not stand still for a second question
            return ""
        asked.append(question)
        return ask_unseen(question, twice=new)

    return ask


def ask_unseen(question: str, *, twice: bool = False, empty: bool = False) -> str:
    """What a person types, not shown; with `empty` it may be nothing."""
    default = "" if empty else None
    answer = click.prompt(
        question, hide_input=True, confirmation_prompt=twice, default=default, show_default=False, err=True,
    )
    return str(answer)


def ask_at_terminal(question: str) -> str:
    """What a person types, not shown, on the terminal's own device. A pipe or a variable does not do."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))  # getpass would take stdin instead
    except OSError:
        raise PresenceNeeded(
            "This needs the PIN, and there is no terminal to type it at. Nothing was done. Use a terminal, or the "
            "page: `keep open`."
        ) from None
    return getpass.getpass(f"{question}: ")


def from_source(source: str, what: str) -> str:
    """The secret that a source gives."""
    kind, _, rest = source.partition(":")
    if source == "-":
        raw = sys.stdin.buffer.read()
    elif kind == "file" and rest:
        raw = _file(Path(rest).expanduser(), what)
    elif kind == "env" and rest:
        if rest not in os.environ:
            raise ConfigError(f"{what}: there is no variable {rest}.")
        raw = os.environb[rest.encode()]
    else:
        raise ConfigError(f"{what} is not taken from the command line, where others can read it. Say where it is: "
                          f"{SOURCES}.")
    return _text(raw, what)


def _file(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what}: {path} cannot be read: {error.strerror}.") from None


def _text(raw: bytes, what: str) -> str:
    """The text without the end of its last line."""
    try:
        text = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{what} is not UTF-8 text.") from None
    if not text:
        raise ConfigError(f"{what} is empty; nothing was stored.")
    return text


def pairs(words: tuple[str, ...], option: str) -> dict[str, str]:
    """`KEY=VALUE` words as a table; the value of a wrong one is not repeated."""
    found: dict[str, str] = {}
    for number, word in enumerate(words, 1):
        key, equals, value = word.partition("=")
        if not equals or not key or key in found:
            raise ConfigError(f"The {option} number {number} must be KEY=VALUE, each key once.")
        found[key] = value
    return found


def warn_of_weak(secrets: Mapping[str, str]) -> None:
    """Say which secrets cannot be recognised in texts, and which can be guessed."""
    for name, value in secrets.items():
        told = weakness(name, value)
        if told:
            say(told)


def weakness(name: str, value: str) -> str | None:
    """Why a secret is too short or too easy to guess, in words; None if it is neither."""
    if len(value) < CHARACTERS_LEAST:
        return f"{name} has fewer than {CHARACTERS_LEAST} characters: it is too short to be found in errors and logs."
    found = bits(value)
    if found >= BITS_LEAST:
        return None
    return (
        f"{name} can be guessed: it looks like one of about 2^{found} values, and fewer than 2^{BITS_LEAST} are too "
        "few. A script notices when Keep hides or refuses a secret, and can try guesses. Have a long random one made "
        "where it comes from."
    )
