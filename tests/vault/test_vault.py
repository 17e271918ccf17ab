"""Secrets are encrypted, bound to their place, with a key that is elsewhere; any change closes the vault."""

from __future__ import annotations

import copy
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import keyring.errors
import pytest

from keepai import PermissionDenied
from keepai.model.errors import NotFound, VaultClosed
from keepai.testing import ManualClock
from keepai.vault.keys import KeyPlaces
from keepai.vault.vault import Vault, path_beside
from tests.harness import Feed

CANARY = "canary-5ecret-8f14e45f"


class Chest(keyring.backend.KeyringBackend):
    """A keyring in memory."""

    priority = 5  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def chest() -> Iterator[Chest]:
    """The system's keyring, for one test."""
    before, made = keyring.get_keyring(), Chest()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


@pytest.fixture
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that has none."""
    from keyring.backends.fail import Keyring

    monkeypatch.setattr(keyring, "get_keyring", Keyring)


def filed(tmp_path: Path, **options: Any) -> Vault:
    """A vault whose key is in a file."""
    return Vault(tmp_path / "keep.secrets", KeyPlaces(key_file=tmp_path / "keys" / "keep.key"), **options)


def document(vault: Vault) -> dict[str, Any]:
    return dict(json.loads(vault.path.read_bytes()))


def test_a_secret_comes_back_and_stands_nowhere_in_the_folder(tmp_path: Path) -> None:
    filed(tmp_path).put("gmail", {"password": CANARY, "token": "t" * 20})
    assert filed(tmp_path).values("gmail") == {"password": CANARY, "token": "t" * 20}
    assert filed(tmp_path).values("other") == {}
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) == 4  # the vault, the key, and a lock for each
    assert not any(CANARY.encode() in p.read_bytes() for p in files)
    assert {stat.S_IMODE(p.stat().st_mode) for p in files} == {0o600}


def test_the_name_follows_the_ledger() -> None:
    assert path_beside(Path("a/keep.db")) == Path("a/keep.secrets")


def test_listing_needs_no_key_and_says_no_value(tmp_path: Path) -> None:
    filed(tmp_path, clock=ManualClock("2026-01-05T09:00:00Z")).put("gmail", {"password": CANARY})
    [kept] = Vault(tmp_path / "keep.secrets", KeyPlaces()).kept()
    assert (kept.connection, kept.secret, kept.set_at) == ("gmail", "password", "2026-01-05T09:00:00.000Z")


def test_without_a_place_for_the_key_nothing_is_stored_and_it_says_what_to_do(tmp_path: Path, no_keyring: None) -> None:
    vault = Vault(tmp_path / "keep.secrets", KeyPlaces())
    with pytest.raises(VaultClosed, match=r"keyring.*key_file.*KEEP_PASSPHRASE"):
        vault.put("gmail", {"password": CANARY})
    assert not vault.path.exists()


def test_a_keyring_that_keeps_texts_readable_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = type("PlaintextKeyring", (Chest,), {"__module__": "keyrings.alt.file"})
    monkeypatch.setattr(keyring, "get_keyring", plain)
    with pytest.raises(VaultClosed, match="no place for the key"):
        Vault(tmp_path / "keep.secrets", KeyPlaces()).put("gmail", {"password": CANARY})


def test_the_keyring_holds_the_key_and_not_the_secret(tmp_path: Path, chest: Chest) -> None:
    vault = Vault(tmp_path / "keep.secrets", KeyPlaces())
    vault.put("gmail", {"password": CANARY})
    assert len(chest.kept) == 1
    assert CANARY not in str(chest.kept)
    again = Vault(vault.path, KeyPlaces())
    assert again.values("gmail")["password"] == CANARY
    chest.kept.clear()
    with pytest.raises(VaultClosed, match="not in the system's keyring"):
        Vault(vault.path, KeyPlaces()).values("gmail")


def test_a_keyring_that_does_not_answer_is_told_without_its_words(
    tmp_path: Path, chest: Chest, monkeypatch: pytest.MonkeyPatch,
) -> None:
    vault = Vault(tmp_path / "keep.secrets", KeyPlaces())
    vault.put("gmail", {"password": CANARY})

    def locked(*_: str) -> None:
        raise keyring.errors.KeyringLocked(CANARY)

    monkeypatch.setattr(chest, "get_password", locked)
    with pytest.raises(VaultClosed, match=r"KeyringLocked.*Unlock it") as caught:
        Vault(vault.path, KeyPlaces()).values("gmail")
    assert CANARY not in caught.value.message


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})
    key = tmp_path / "keys" / "keep.key"
    for mode in (0o640, 0o604, 0o620):
        key.chmod(mode)
        with pytest.raises(VaultClosed, match=r"Other users may read .* chmod 600"):
            filed(tmp_path).values("gmail")
    key.chmod(0o600)
    assert filed(tmp_path).values("gmail")["password"] == CANARY


@pytest.mark.parametrize(("content", "told"), [
    (None, "no key file"), ("", "not in"), ("hello\n", "not a key file of Keep"), ("\xff", "cannot be read"),
])
def test_a_key_file_that_is_none_is_told(tmp_path: Path, content: str | None, told: str) -> None:
    filed(tmp_path).put("gmail", {"password": CANARY})
    key = tmp_path / "keys" / "keep.key"
    key.unlink() if content is None else key.write_text(content, "latin-1")
    with pytest.raises(VaultClosed, match=told):
        filed(tmp_path).values("gmail")


def test_somebody_elses_file_is_not_taken_for_a_key_file(tmp_path: Path) -> None:
    mine = tmp_path / "notes"
    mine.write_text("these are my notes\n")
    mine.chmod(0o600)
    with pytest.raises(VaultClosed, match="was not changed"):
        Vault(tmp_path / "keep.secrets", KeyPlaces(key_file=mine)).put("gmail", {"password": CANARY})
    assert mine.read_text() == "these are my notes\n"


def test_a_wrong_passphrase_opens_nothing_and_stores_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keep.secrets"
    Vault(path, KeyPlaces(passphrase="correct horse")).put("gmail", {"password": CANARY})
    before = path.read_bytes()
    assert b"correct horse" not in before
    wrong = Vault(path, KeyPlaces(passphrase="wrong horse"))
    with pytest.raises(VaultClosed, match="passphrase is not the one") as caught:
        wrong.values("gmail")
    assert "horse" not in caught.value.message
    with pytest.raises(VaultClosed, match="passphrase is not the one"):
        wrong.put("gmail", {"password": "another"})
    with pytest.raises(VaultClosed, match="KEEP_PASSPHRASE"):
        Vault(path, KeyPlaces()).values("gmail")
    assert path.read_bytes() == before
    asked: list[tuple[str, bool]] = []
    typed = Vault(path, KeyPlaces(ask=lambda question, new: asked.append((question, new)) or "correct horse"))
    assert typed.values("gmail")["password"] == CANARY
    assert [new for _, new in asked] == [False]


def test_a_key_that_is_missing_is_not_looked_for_at_every_call(tmp_path: Path) -> None:
    clock = ManualClock("2026-01-05T09:00:00Z")
    filed(tmp_path).put("gmail", {"password": CANARY})
    key = tmp_path / "keys" / "keep.key"
    key.chmod(0o644)
    vault = filed(tmp_path, clock=clock)
    for _ in range(2):
        with pytest.raises(VaultClosed, match="Other users may read"):
            vault.values("gmail")
        key.chmod(0o600)
    clock.advance(seconds=11)
    assert vault.values("gmail")["password"] == CANARY


# -- tampering -------------------------------------------------------------------------------------


def _swap_values(doc: dict[str, Any]) -> None:
    one, two = (doc["connections"][name]["secrets"] for name in ("bank", "gmail"))
    one["password"], two["password"] = two["password"], one["password"]


def _swap_parts(doc: dict[str, Any]) -> None:
    parts = doc["connections"]
    parts["bank"], parts["gmail"] = parts["gmail"], parts["bank"]


def _flip(doc: dict[str, Any]) -> None:
    entry = doc["connections"]["gmail"]["secrets"]["password"]
    entry["sealed"] = ("A" if entry["sealed"][0] != "A" else "B") + entry["sealed"][1:]


CHANGES: dict[str, Any] = {
    "a secret moved to another connection": _swap_values,
    "two connections swapped": _swap_parts,
    "a byte changed": _flip,
    "a secret taken out": lambda doc: doc["connections"].pop("bank"),
    "a secret renamed": lambda doc: doc["connections"]["gmail"]["secrets"].update(
        token=doc["connections"]["gmail"]["secrets"].pop("password")),
    "a time changed": lambda doc: doc["connections"]["gmail"]["secrets"]["password"].update(set_at="2020-01-01"),
    "another vault's name": lambda doc: doc.update(vault="0" * 16),
    "the mark taken out": lambda doc: doc.pop("mark"),
    "the connections taken out": lambda doc: doc.pop("connections"),
    "the key's home made up": lambda doc: doc["key"].update(home="nowhere"),
    "nonsense for a value": lambda doc: doc["connections"]["gmail"].update(secrets=5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_something_else_changed_is_not_used(tmp_path: Path, change: str) -> None:
    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})
    vault.put("bank", {"password": "another-" + CANARY})
    changed = document(vault)
    CHANGES[change](changed)
    vault.path.write_text(json.dumps(changed))
    before = vault.path.read_bytes()
    uses = (lambda v: v.values("gmail"), lambda v: v.put("gmail", {"password": "new"}), lambda v: v.delete("gmail"))
    for use in uses:
        with pytest.raises(VaultClosed, match=r"is damaged, or another program changed it|not the one") as caught:
            use(filed(tmp_path))
        assert CANARY not in caught.value.message
    assert vault.path.read_bytes() == before


def test_each_text_is_bound_to_its_place_even_for_who_has_the_master_key(tmp_path: Path) -> None:
    # the mark alone would also find these; the binding holds where somebody can make a mark
    from keepai.vault.sealing import mark

    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})
    vault.put("bank", {"password": "another-" + CANARY})
    [master] = vault._masters.values()
    for change in (_swap_values, _swap_parts):
        changed = copy.deepcopy(document(vault))
        change(changed)
        del changed["mark"]
        other = tmp_path / "other.secrets"
        other.write_text(json.dumps({**changed, "mark": mark(master, "mark", changed)}))
        with pytest.raises(VaultClosed, match="is damaged, or another program changed it"):
            Vault(other, KeyPlaces(key_file=tmp_path / "keys" / "keep.key")).values("gmail")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_vault_is_told_and_not_overwritten(tmp_path: Path, content: bytes) -> None:
    vault = filed(tmp_path)
    vault.path.write_bytes(content)
    for use in (lambda: vault.values("gmail"), lambda: vault.put("gmail", {"password": CANARY}), vault.kept):
        with pytest.raises(VaultClosed, match="is damaged, or another program changed it"):
            use()
    assert vault.path.read_bytes() == content


def test_a_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})
    vault.path.write_text(json.dumps({**document(vault), "format": 2}))
    before = vault.path.read_bytes()
    with pytest.raises(VaultClosed, match="Upgrade Keep"):
        filed(tmp_path).put("gmail", {"password": "new-value"})
    assert vault.path.read_bytes() == before


# -- changing --------------------------------------------------------------------------------------


def test_an_open_vault_sees_what_another_process_changed(tmp_path: Path) -> None:
    mine, theirs = filed(tmp_path), filed(tmp_path)
    view = mine.view("gmail")
    assert dict(view) == {}
    theirs.put("gmail", {"password": "first-value"})
    assert view["password"] == "first-value"
    theirs.put("gmail", {"password": "second-value"})
    assert view["password"] == "second-value"
    theirs.rotate(KeyPlaces(key_file=tmp_path / "keys" / "keep.key"))
    assert view["password"] == "second-value"
    theirs.delete("gmail", "password")
    assert "password" not in view


def test_a_view_is_one_connections_part_and_writes_back(tmp_path: Path) -> None:
    vault = filed(tmp_path)
    mine, other = vault.view("gmail"), vault.view("bank")
    mine["token"] = CANARY
    assert (dict(filed(tmp_path).view("gmail")), dict(other)) == ({"token": CANARY}, {})
    assert CANARY not in repr(mine)
    del mine["token"]
    with pytest.raises(KeyError):
        del mine["token"]
    with pytest.raises(KeyError):
        mine["token"]


def test_a_connector_without_its_secret_says_the_command(tmp_path: Path) -> None:
    feed = Feed()
    feed.entrust(filed(tmp_path).view("feed"))
    with pytest.raises(PermissionDenied, match="keep secrets set feed token"):
        feed.secret("token")


def test_rotating_changes_every_key_and_no_secret(tmp_path: Path) -> None:
    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})
    vault.put("bank", {"pin": "123456"})
    before, key = document(vault), (tmp_path / "keys" / "keep.key").read_text()
    vault.rotate(KeyPlaces(key_file=tmp_path / "keys" / "keep.key"))
    after = document(vault)
    assert filed(tmp_path).values("gmail") == {"password": CANARY}
    assert filed(tmp_path).values("bank") == {"pin": "123456"}
    for name in ("gmail", "bank"):
        old, new = before["connections"][name], after["connections"][name]
        assert old["key"] != new["key"]
        for secret in old["secrets"]:
            assert old["secrets"][secret]["sealed"] != new["secrets"][secret]["sealed"]
            assert old["secrets"][secret]["set_at"] == new["secrets"][secret]["set_at"]
    assert before["key"]["id"] != after["key"]["id"]
    [line] = (tmp_path / "keys" / "keep.key").read_text().splitlines()
    assert line + "\n" != key  # the old key is gone, and an old copy of the file does not open
    vault.path.write_text(json.dumps(before))
    with pytest.raises(VaultClosed, match="is not in"):
        filed(tmp_path).values("gmail")


def test_a_key_moves_from_a_file_into_the_keyring(tmp_path: Path, chest: Chest) -> None:
    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})
    assert vault.rotate(KeyPlaces(), "keyring") == "keyring"
    assert Vault(vault.path, KeyPlaces()).values("gmail")["password"] == CANARY
    assert (tmp_path / "keys" / "keep.key").read_text() == ""


def test_an_old_key_that_cannot_be_deleted_is_told_and_everything_is_readable(
    tmp_path: Path, chest: Chest, monkeypatch: pytest.MonkeyPatch,
) -> None:
    vault = Vault(tmp_path / "keep.secrets", KeyPlaces())
    vault.put("gmail", {"password": CANARY})

    def refuse(*_: str) -> None:
        raise keyring.errors.PasswordDeleteError

    monkeypatch.setattr(chest, "delete_password", refuse)
    with pytest.raises(VaultClosed, match="new keys, but the old key could not be deleted"):
        vault.rotate(KeyPlaces())
    assert Vault(vault.path, KeyPlaces()).values("gmail")["password"] == CANARY


def test_a_rotation_that_dies_before_its_write_leaves_everything_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("keepai.vault.file.write", die)
        with pytest.raises(KeyboardInterrupt):
            vault.rotate(KeyPlaces(key_file=tmp_path / "keys" / "keep.key"))
    assert filed(tmp_path).values("gmail")["password"] == CANARY


def test_deleting_says_what_is_gone_and_what_was_never_there(tmp_path: Path) -> None:
    vault = filed(tmp_path)
    with pytest.raises(NotFound, match="No secret is stored"):
        vault.delete("gmail")
    vault.put("gmail", {"password": CANARY, "token": "abcdef"})
    with pytest.raises(NotFound, match=r"gmail\.pin"):
        vault.delete("gmail", "pin")
    assert vault.delete("gmail", "token") == ["token"]
    assert vault.delete("gmail") == ["password"]
    assert document(vault)["connections"] == {}


@pytest.mark.parametrize("value", ["", "x" * 70_000])
def test_a_secret_of_no_or_too_many_bytes_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(VaultClosed, match=r"gmail\.password must have"):
        filed(tmp_path).put("gmail", {"password": value})


@pytest.mark.parametrize("value", ["päss wörd", "a\nb\nc", "\ud800-lone", "日本語のパスワード", '"quoted\\"'])
def test_any_text_comes_back_as_it_was(tmp_path: Path, value: str) -> None:
    filed(tmp_path).put("gmail", {"password": value})
    assert filed(tmp_path).values("gmail")["password"] == value


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    filed(tmp_path).put("first", {"secret": CANARY})
    vaults = [filed(tmp_path) for _ in range(4)]

    def work(number: int) -> None:
        for turn in range(5):
            vaults[number].put(f"c{number}", {f"s{turn}": f"value-{number}-{turn}"})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(filed(tmp_path).kept()) == 21
    assert filed(tmp_path).values("c3")["s4"] == "value-3-4"


def test_vaults_that_share_a_key_file_lose_no_key(tmp_path: Path) -> None:
    vaults = [Vault(tmp_path / f"{n}.secrets", KeyPlaces(key_file=tmp_path / "keep.key")) for n in range(6)]
    threads = [threading.Thread(target=vault.put, args=("gmail", {"password": CANARY})) for vault in vaults]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    vaults[0].rotate(KeyPlaces(key_file=tmp_path / "keep.key"))
    for vault in vaults:
        assert Vault(vault.path, KeyPlaces(key_file=tmp_path / "keep.key")).values("gmail") == {"password": CANARY}


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    vault = filed(tmp_path)
    vault.path.symlink_to(tmp_path / "elsewhere" / "real")
    vault.put("gmail", {"password": CANARY})
    vault.put("gmail", {"password": "another"})
    assert vault.path.is_symlink()
    assert filed(tmp_path).values("gmail") == {"password": "another"}


HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_writer_that_does_not_let_go_is_told_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepai.vault.file.TRIES", 2)
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "keep.secrets.lock")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(VaultClosed, match="for too long"):
            filed(tmp_path).put("gmail", {"password": CANARY})
    finally:
        other.communicate()
    filed(tmp_path).put("gmail", {"password": CANARY})


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = filed(tmp_path)
    vault.put("gmail", {"password": CANARY})
    before = vault.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(VaultClosed, match="No space left"):
            vault.put("gmail", {"password": "another"})
    assert vault.path.read_bytes() == before
    assert not list(tmp_path.glob("*.part"))
