"""Where the master key of a vault is: in the system's keyring, in a key file, or derived from a passphrase.

The entry `key` of the vault's file says which of the three; the file never holds the key. If there is no place for a
key, nothing is stored: secrets are never stored without a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..model.errors import VaultClosed
from . import file
from .sealing import KEY_BYTES, Unsealable, as_bytes, as_text, new_key, new_name, stretched

Home = Literal["keyring", "file", "passphrase"]
HOMES: tuple[Home, ...] = ("keyring", "file", "passphrase")
SERVICE = "keep"
COST, COST_MAX = 1 << 17, 1 << 20  #: of one guess of a passphrase: 128 MiB and half a second
NOWHERE = (
    "There is no place for the key of the secrets, so nothing was stored. Do one of these: install the keyring "
    "(pip install 'keepai[keyring]') where the system has one; name a file for the key with key_file in [keep] of "
    "keep.toml, or in KEEP_KEY_FILE; or put a passphrase in KEEP_PASSPHRASE."
)


@dataclass(frozen=True)
class KeyPlaces:
    """Where this process may find a key, or put a new one."""

    key_file: Path | None = None
    passphrase: str | None = field(default=None, repr=False)
    ask: Callable[[str, bool], str] | None = None  # asks a person for the passphrase without echo; a new one twice


def home_for(places: KeyPlaces, wanted: Home | None = None) -> Home:
    """Where to put a new key. If there is no place, `VaultClosed` says what to do."""
    if wanted is not None:
        return wanted
    if places.key_file is not None:
        return "file"
    if places.passphrase:
        return "passphrase"
    if _keyring() is not None:
        return "keyring"
    if places.ask is not None:
        return "passphrase"
    raise VaultClosed(NOWHERE)


def make(home: Home, vault: str, places: KeyPlaces) -> tuple[dict[str, Any], bytes]:
    """Make and store a new master key. Returns the entry by which it is found, and the key."""
    name = new_name()
    if home == "passphrase":
        salt = new_key()[:16]
        return ({"id": name, "home": home, "salt": as_text(salt), "cost": COST},
                stretched(_passphrase(places, "New passphrase for the secrets", new=True), salt, COST))
    key = new_key()
    if home == "file":
        _add_key(_key_file(places), name, as_text(key))
    else:
        _use_keyring("set_password", f"{vault}.{name}", as_text(key))
    return {"id": name, "home": home}, key


def find(entry: Mapping[str, Any], vault: str, places: KeyPlaces) -> bytes:
    """The master key of an entry; raises `VaultClosed`, or `Unsealable` if the entry is not valid."""
    home, name = entry.get("home"), str(entry.get("id"))
    if home == "passphrase":
        cost = entry.get("cost")
        if not isinstance(cost, int) or not COST >> 3 <= cost <= COST_MAX or cost & (cost - 1):
            raise Unsealable
        return stretched(_passphrase(places, "Passphrase of the secrets"), as_bytes(entry.get("salt")), cost)
    if home == "file":
        path = _key_file(places)
        given = _read_keys(path).get(name)
        where = str(path)
    elif home == "keyring":
        given, where = _use_keyring("get_password", f"{vault}.{name}"), "the system's keyring"
    else:
        raise Unsealable
    if given is None:
        raise VaultClosed(f"The key of the secrets is not in {where}. Put it back, or store the secrets again.")
    key = as_bytes(given)
    if len(key) != KEY_BYTES:
        raise VaultClosed(f"What is in {where} is not the key of the secrets. Put the key back there.")
    return key


def forget(entry: Mapping[str, Any], vault: str, places: KeyPlaces) -> None:
    """Delete a key that is no longer used."""
    if entry.get("home") == "file" and places.key_file is not None and places.key_file.exists():
        with file.locked(places.key_file):
            left = {name: key for name, key in _read_keys(places.key_file).items() if name != entry.get("id")}
            _write_keys(places.key_file, left)
    elif entry.get("home") == "keyring":
        _use_keyring("delete_password", f"{vault}.{entry.get('id')}")


def _passphrase(places: KeyPlaces, question: str, *, new: bool = False) -> str:
    given = places.passphrase or (places.ask(question, new) if places.ask else "")
    if not given:
        raise VaultClosed(
            "The secrets are locked with a passphrase, and none was given. Put it in KEEP_PASSPHRASE, or run the "
            "command at a terminal and type it."
        )
    return given


# -- the key file: one line for each key, `id key` ---------------------------------------------------


def _key_file(places: KeyPlaces) -> Path:
    if places.key_file is None:
        raise VaultClosed(
            "The key of the secrets is in a file, and its path is not set. Set it with key_file in [keep] of "
            "keep.toml, or with KEEP_KEY_FILE."
        )
    return places.key_file


def _read_keys(path: Path) -> dict[str, str]:
    try:
        if file.is_others(path):
            raise VaultClosed(f"Other users may read the key in {path}, so it is not used. Run: chmod 600 {path}")
        lines = path.read_text("ascii").split("\n")
    except FileNotFoundError:
        raise VaultClosed(f"There is no key file {path}. Put it back, or store the secrets again.") from None
    except (OSError, ValueError):
        raise VaultClosed(f"The key file {path} cannot be read. Change its permissions, or put it back.") from None
    pairs = [line.split() for line in lines if line.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise VaultClosed(f"{path} is not a key file of Keep. Use another file for the key; this one was not changed.")
    return dict(pairs)


def _add_key(path: Path, name: str, key: str) -> None:
    """Several vaults may share a key file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise VaultClosed(f"The folder of the key file {path} cannot be made: {error.strerror}.") from None
    with file.locked(path):
        _write_keys(path, {**(_read_keys(path) if path.exists() else {}), name: key})


def _write_keys(path: Path, keys: Mapping[str, str]) -> None:
    file.replace(path, "".join(f"{name} {key}\n" for name, key in keys.items()).encode(), 0o600)


# -- the keyring -------------------------------------------------------------------------------------


def _keyring() -> Any:
    """The system's keyring; None if there is none that protects what it stores."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None
    try:
        backend = keyring.get_keyring()
        backends = list(getattr(backend, "backends", [backend]))  # one backend may combine several
        trusted = backend.priority >= 1 and not any(type(member).__module__.startswith(_PLAIN) for member in backends)
    except (KeyringError, RuntimeError):
        return None
    return backend if trusted else None


_PLAIN = ("keyrings.alt", "keyring.backends.null", "keyring.backends.fail")  #: they store nothing, or unprotected


def _use_keyring(act: str, name: str, *more: str) -> Any:
    backend = _keyring()
    if backend is None:
        raise VaultClosed(
            "The key of the secrets is in the system's keyring, and no usable keyring was found. Unlock it, "
            "or install it: pip install 'keepai[keyring]'."
        )
    from keyring.errors import KeyringError

    try:
        return getattr(backend, act)(SERVICE, name, *more)
    except (KeyringError, RuntimeError, OSError) as error:
        kind = type(error).__name__
        raise VaultClosed(f"The system's keyring did not answer ({kind}). Unlock it, then try again.") from None
