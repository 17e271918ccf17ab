"""The vault: secrets by connection and name, encrypted in one file, and a view for each connector.

Each connection has its own data key, and the master key encrypts the data keys. So a token that is renewed every hour
wears out no other key. The whole file is authenticated with the master key: if another program changes it, the vault
closes. Decrypted values stay in the memory of this process until the file changes.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import Any

from ..model.clock import Clock, SystemClock, iso
from ..model.errors import NotFound, VaultClosed
from . import file, keys
from .file import Document
from .keys import Home, KeyPlaces
from .sealing import Unsealable, is_mark, mark, new_key, new_name, seal, unseal

FORMAT = 1
SECRET_BYTES_MAX = 64 << 10
CLOSED_MS = 10_000  #: for this long a missing or wrong key is not asked for again


def path_beside(ledger: Path) -> Path:
    """The file with the secrets of the connections: `keep.secrets` beside `keep.db`."""
    return ledger.with_suffix(".secrets")


@dataclass(frozen=True)
class StoredSecret:
    """Says that a secret is stored, without its value."""

    connection: str
    secret: str
    set_at: str


@dataclass
class _Opened:
    """A document that was decrypted and authenticated."""

    document: Document
    master: bytes = field(repr=False)
    values: dict[str, dict[str, str]] = field(default_factory=dict, repr=False)


class Vault:
    """The secrets in one file. Changes by other processes are seen at the next access."""

    def __init__(self, path: Path, places: KeyPlaces, clock: Clock | None = None) -> None:
        self.path, self._places, self._clock = path, places, clock or SystemClock()
        self._lock = RLock()  # connectors may call from threads
        self._seen: file.Print | None = None
        self._values: dict[str, dict[str, str]] = {}
        self._masters: dict[str, bytes] = {}
        self._closed: tuple[file.Print | None, int, str] | None = None  # which file could not be opened, when, why

    def view(self, connection: str) -> MutableMapping[str, str]:
        """The secrets of one connection."""
        return ConnectionSecrets(self, connection)

    # -- reading -----------------------------------------------------------------------------------

    def values(self, connection: str) -> Mapping[str, str]:
        """The present secrets of a connection; raises `VaultClosed`."""
        with self._lock:
            print_now = file.print_of(self.path)
            if print_now != self._seen or print_now is None:
                self._read(print_now)
            return self._values.get(connection, {})

    def _read(self, print_now: file.Print | None) -> None:
        """Open the present file. If that just failed, do not try again for a while."""
        now = self._clock.steady_ms()
        if self._closed and self._closed[0] == print_now and now - self._closed[1] < CLOSED_MS:
            raise VaultClosed(self._closed[2])
        self._values, self._seen = {}, None
        try:
            document = file.read(self.path)
            self._values = self._opened(document).values if document is not None else {}
        except VaultClosed as error:
            self._closed = (print_now, now, error.message)
            raise
        self._seen = print_now

    def kept(self) -> list[StoredSecret]:
        """All stored secrets, without their values. This needs no key."""
        document = file.read(self.path) or {"connections": {}}
        try:
            return [
                StoredSecret(str(connection), str(secret), str(entry["set_at"]))
                for connection, part in sorted(document["connections"].items())
                for secret, entry in sorted(part["secrets"].items())
            ]
        except (KeyError, TypeError, AttributeError):
            raise VaultClosed(file.damaged(self.path)) from None

    def home(self) -> str | None:
        """Where the key is, as the file says; None if there is no file."""
        document = file.read(self.path)
        entry = document.get("key") if document else None
        return str(entry.get("home")) if isinstance(entry, dict) else None

    # -- changing ----------------------------------------------------------------------------------

    def put(self, connection: str, secrets: Mapping[str, str]) -> None:
        """Store secrets of a connection. Its other secrets stay."""
        for name, value in secrets.items():
            if not value or len(value.encode("utf-8", "surrogatepass")) > SECRET_BYTES_MAX:
                raise VaultClosed(f"{connection}.{name} must have 1 to {SECRET_BYTES_MAX:,} bytes; nothing was stored.")
        with self._changing() as opened:
            part = opened.document["connections"].setdefault(connection, {"secrets": {}})
            if "key" not in part:
                part["key"] = seal(opened.master, new_key(), _bound(opened, "key", connection))
            at = iso(self._clock.now_ms())
            for name, value in secrets.items():
                part["secrets"][name] = _sealed(opened, connection, name, value, at)

    def delete(self, connection: str, secret: str | None = None) -> list[str]:
        """Delete one secret of a connection, or all of them; returns their names."""
        with self._changing(create=False) as opened:
            part = opened.document["connections"].get(connection, {"secrets": {}})
            names = sorted(part["secrets"]) if secret is None else [name for name in part["secrets"] if name == secret]
            if not names:
                wanted = connection if secret is None else f"{connection}.{secret}"
                raise NotFound(f"No secret {wanted} is stored. `keep secrets list` lists them.")
            for name in names:
                del part["secrets"][name]
            if not part["secrets"]:
                del opened.document["connections"][connection]
        return names

    def rotate(self, places: KeyPlaces, home: Home | None = None) -> Home:
        """Encrypt everything again with new keys. The old keys cannot open the new file."""
        with self._changing(create=False) as opened:
            document = opened.document
            old = document["key"]
            chosen: Home = home or old["home"]
            _rekey(opened, chosen, places)
            at = {(secret.connection, secret.secret): secret.set_at for secret in self.kept()}
            for connection, part in document["connections"].items():
                part["key"] = seal(opened.master, new_key(), _bound(opened, "key", connection))
                for name in part["secrets"]:
                    value = opened.values[connection][name]
                    part["secrets"][name] = _sealed(opened, connection, name, value, at[connection, name])
        try:
            keys.forget(old, document["vault"], self._places)
        except VaultClosed as error:
            message = f"All secrets have new keys, but the old key could not be deleted. {error.message}"
            raise VaultClosed(message) from None
        finally:
            self._places = places
        return chosen

    @contextmanager
    def _changing(self, *, create: bool = True) -> Iterator[_Opened]:
        """The vault while only this process changes it; it is written if there was no error."""
        with self._lock, file.locked(self.path):
            document = file.read(self.path)
            if document is None and not create:
                raise NotFound(f"No secret is stored: there is no {self.path}.")
            if document is not None:
                opened = self._opened(document)
            else:
                opened = _Opened({"format": FORMAT, "vault": new_name(), "connections": {}}, b"")
                _rekey(opened, keys.home_for(self._places), self._places)
            yield opened
            opened.document["mark"] = mark(opened.master, "mark", _unmarked(opened.document))
            file.write(self.path, opened.document)
            self._masters = {opened.document["key"]["id"]: opened.master}

    # -- opening -----------------------------------------------------------------------------------

    def _opened(self, document: Document) -> _Opened:
        """The document with its values. Any mismatch closes the vault."""
        try:
            if document["format"] != FORMAT:
                raise VaultClosed(f"{self.path} has format {document['format']!r}, which this Keep does not know. "
                                  "Upgrade Keep (pip install -U keepai).")
            opened = _Opened(document, self._master(document))
            if not is_mark(document["mark"], opened.master, "mark", _unmarked(document)):
                raise Unsealable
            parts = document["connections"].items()
            opened.values = {connection: _unsealed(opened, connection, part) for connection, part in parts}
        except (Unsealable, KeyError, TypeError, AttributeError, UnicodeDecodeError):
            raise VaultClosed(file.damaged(self.path)) from None
        return opened

    def _master(self, document: Document) -> bytes:
        entry, vault = document["key"], document["vault"]
        known = self._masters.get(entry["id"])
        master = known or keys.find(entry, vault, self._places)
        if not is_mark(entry["check"], master, "check", [vault, entry["id"]]):
            label = "The passphrase" if entry["home"] == "passphrase" else f"The key ({entry['home']})"
            raise VaultClosed(f"{label} is not the one that {self.path} was locked with. Nothing was read or stored.")
        self._masters = {entry["id"]: master}
        return master


class ConnectionSecrets(MutableMapping[str, str]):
    """The secrets of one connection. Each is read at every access, and stored at once when it is set."""

    def __init__(self, vault: Vault, connection: str) -> None:
        self._vault, self._connection = vault, connection

    def __getitem__(self, name: str) -> str:
        return self._vault.values(self._connection)[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._vault.put(self._connection, {name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._vault.delete(self._connection, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._vault.values(self._connection))

    def __len__(self) -> int:
        return len(self._vault.values(self._connection))

    def items(self) -> ItemsView[str, str]:  # all of them by one look at the file
        return self._vault.values(self._connection).items()

    def __repr__(self) -> str:
        return f"<the secrets of {self._connection}>"


def _rekey(opened: _Opened, home: Home, places: KeyPlaces) -> None:
    """Give the vault a new master key."""
    vault = opened.document["vault"]
    entry, opened.master = keys.make(home, vault, places)
    opened.document["key"] = {**entry, "check": mark(opened.master, "check", [vault, entry["id"]])}


def _unmarked(document: Document) -> Document:
    return {name: value for name, value in document.items() if name != "mark"}


def _bound(opened: _Opened, *more: str) -> tuple[str, ...]:
    """The place of a value in this vault: it cannot be decrypted in another one."""
    return (str(FORMAT), opened.document["vault"], *more)


def _sealed(opened: _Opened, connection: str, name: str, value: str, at: str) -> dict[str, str]:
    """A secret as it is stored, encrypted with the data key of its connection."""
    sealed_key = opened.document["connections"][connection]["key"]
    key = unseal(opened.master, sealed_key, _bound(opened, "key", connection))
    bound = _bound(opened, "secret", connection, name, at)
    return {"sealed": seal(key, value.encode("utf-8", "surrogatepass"), bound), "set_at": at}


def _unsealed(opened: _Opened, connection: str, part: Mapping[str, Any]) -> dict[str, str]:
    """The secrets of a connection."""
    key = unseal(opened.master, part["key"], _bound(opened, "key", connection))
    content = {
        name: unseal(key, entry["sealed"], _bound(opened, "secret", connection, name, entry["set_at"]))
        for name, entry in part["secrets"].items()
    }
    return {name: value.decode("utf-8", "surrogatepass") for name, value in content.items()}


