"""`keep connect` and `keep secrets`: what is typed unseen is stored encrypted, and no command ever shows it."""

from __future__ import annotations

import inspect
import json
import os
import pty
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from keepai import connectors
from keepai.doors.cli.connect import _value as setting
from keepai.vault.keys import KeyPlaces
from keepai.vault.vault import Vault

from .bank import RENEWED, RIGHT
from .conftest import ROOT, SETTINGS, Place

WRONG = "wrong-canary-0a1b2c3d"
TYPES = {**connectors.TYPES, "test.bank": "tests.cli.bank:Bank"}
KEY = ("bank", "test.bank", "--set", "url=https://bank.example")


@pytest.fixture
def bank(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place where the type is known and the key of the secrets has a file elsewhere; nothing may show a secret."""
    monkeypatch.setattr(connectors, "TYPES", TYPES)
    monkeypatch.setenv("KEEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "keep.key"))
    monkeypatch.setenv("BANK_RIGHT", RIGHT)
    monkeypatch.setenv("BANK_WRONG", WRONG)
    yield place
    for name, content in place.files().items():
        for secret in (RIGHT, WRONG, RENEWED):
            assert secret.encode() not in content, name


def stored(place: Place, connection: str = "bank") -> dict[str, str]:
    vault = Vault(place.folder / "keep.secrets", KeyPlaces(key_file=Path(os.environ["KEEP_KEY_FILE"])))
    return dict(vault.values(connection))


def silent(result: Result) -> str:
    """Everything that a command said, in which no secret is."""
    said = result.stdout + result.stderr
    assert not any(secret in said for secret in (RIGHT, WRONG, RENEWED))
    return said


def table(place: Place) -> dict[str, object]:
    return dict(tomllib.loads((place.folder / "keep.toml").read_text())["connectors"]["bank"])


# -- connect ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "more", "why"), [
    ("webhook", ("url=https://hooks.example/x", "signed=false"), "every request to a webhook counts as an event"),
    ("own:Own", (), "this connector has no check()"),
])
def test_a_connection_that_cannot_be_tried_is_not_said_to_answer(
    place: Place, kind: str, more: tuple[str, ...], why: str,
) -> None:
    (place.folder / "own.py").write_text("from keepai import Connector\nclass Own(Connector):\n    pass\n")
    given = [word for setting in more for word in ("--set", setting)]
    said = place.type("connect", "hook", kind, *given)
    assert "ctx.hook was not tried" in said.stdout
    assert why in said.stdout
    assert "answers" not in said.stdout
    assert "[connectors.hook]" in (place.folder / "keep.toml").read_text(), "it is written all the same"
    assert place.json("connect", "hook", kind, *given)["checked"] is False
    [found] = [each for each in place.json("doctor", code=0) if each["name"] == "ctx.hook"]
    assert found["state"] == "warn"
    assert "was not tried" in found["said"]
    assert why in found["said"]
    sys.modules.pop("own", None)


def test_a_connection_that_answers_is_written_and_its_secrets_are_stored(bank: Place) -> None:
    before = (bank.folder / "keep.toml").read_text()
    said = silent(bank.type("connect", *KEY, "--set", "port=993", "--set", "tls=false", "--set", "folder=in box",
                            "--secret", "password=env:BANK_RIGHT"))
    assert "ctx.bank answers" in said
    after = (bank.folder / "keep.toml").read_text()
    assert after.startswith(before + "\n[connectors.bank]\n")
    assert table(bank) == {"type": "test.bank", "url": "https://bank.example", "port": 993, "tls": False,
                           "folder": "in box"}
    assert stored(bank) == {"password": RIGHT, "token": RENEWED}  # what the check renewed is kept as well
    assert stat.S_IMODE((bank.folder / "keep.secrets").stat().st_mode) == 0o600


def test_programs_are_told_what_was_done(bank: Place) -> None:
    done = bank.json("connect", *KEY, "--secret", "password=env:BANK_RIGHT")
    assert done == {
        "name": "bank", "type": "test.bank", "file": "keep.toml", "added": True, "checked": True,
        "settings": {"type": "test.bank", "url": "https://bank.example"}, "secrets": ["password", "token"],
    }


@pytest.mark.parametrize("way", ["stdin", "file"])
def test_a_secret_comes_from_stdin_or_a_file_without_its_last_line_end(bank: Place, tmp_path: Path, way: str) -> None:
    given = tmp_path.parent / f"{tmp_path.name}-password"
    given.write_text(RIGHT + "\n")
    source = "-" if way == "stdin" else f"file:{given}"
    silent(bank.type("connect", *KEY, "--secret", f"password={source}", stdin=RIGHT + "\r\n"))
    assert stored(bank)["password"] == RIGHT


def test_a_connection_that_does_not_answer_changes_nothing(bank: Place) -> None:
    before = bank.files()
    said = silent(bank.type("connect", *KEY, "--secret", "password=env:BANK_WRONG", code=1))
    assert "does not know '[secret bank.password]'" in said
    assert "Nothing was written or stored" in said
    assert bank.files() == before


def test_a_connection_without_its_secret_says_which(bank: Place) -> None:
    said = silent(bank.type("connect", *KEY, code=1))
    assert "bank has no secret password" in said


def test_a_person_may_have_it_stored_nevertheless(bank: Place) -> None:
    done = bank.json("connect", *KEY, "--secret", "password=env:BANK_WRONG", "--unchecked")
    assert not done["checked"]
    assert stored(bank) == {"password": WRONG}
    assert table(bank)["url"] == "https://bank.example"


@pytest.mark.parametrize("word", [
    f"password={RIGHT}", RIGHT, "password=env:NO_SUCH", "password=", "password=file:", "pin=env:BANK_RIGHT",
    "password=file:/no/such/file",
])
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(bank: Place, word: str) -> None:
    before = bank.files()
    result = bank.type("connect", *KEY, "--secret", word, code=2)
    assert RIGHT not in result.stdout + result.stderr
    assert bank.files() == before


def test_a_secret_among_the_settings_is_refused_and_not_repeated(bank: Place) -> None:
    said = silent(bank.type("connect", *KEY, "--set", f"password={RIGHT}", code=2))
    assert "--secret password=SOURCE" in said


def test_two_secrets_cannot_both_be_stdin(bank: Place) -> None:
    said = silent(bank.type("connect", *KEY, "--secret", "password=-", "--secret", "token=-", stdin=RIGHT, code=2))
    assert "Only one secret" in said


def test_wrong_settings_are_told_before_anything_is_asked_or_written(bank: Place) -> None:
    before = bank.files()
    said = silent(bank.type("connect", "bank", "test.bank", "--set", f"port={WRONG}", "--set", "ulr=x",
                            "--secret", "password=env:BANK_RIGHT", code=2))
    assert "'url' is missing" in said
    assert "'port' must be a whole number, not a string" in said
    assert "did you mean 'url'" in said
    said = silent(bank.type("connect", "bank", "test.bnak", code=2))
    assert "Did you mean 'test.bank'?" in said
    assert bank.files() == before


def test_a_name_that_scripts_cannot_say_is_refused(bank: Place) -> None:
    assert "means something else" in silent(bank.type("connect", "publish", *KEY[1:], "--unchecked", code=2))
    assert "cannot name a connector" in silent(bank.type("connect", "a.b", *KEY[1:], "--unchecked", code=2))


def test_a_table_that_is_there_stays_byte_for_byte_and_gets_its_secrets(bank: Place) -> None:
    text = SETTINGS + '\n[connectors.bank]  # ours\ntype = "test.bank"\nurl = "https://other.example"   # by hand\n'
    (bank.folder / "keep.toml").write_text(text)
    done = bank.json("connect", "bank", "test.bank", "--secret", "password=env:BANK_RIGHT")
    assert (done["added"], done["settings"]["url"]) == (False, "https://other.example")
    assert (bank.folder / "keep.toml").read_text() == text
    assert stored(bank)["password"] == RIGHT
    again = bank.json("connect", "bank", "test.bank")  # what is stored is used
    assert (again["checked"], again["secrets"]) == (True, [])
    said = silent(bank.type("connect", *KEY, code=1))
    assert "already, with another url" in said


@pytest.mark.parametrize("text", [
    "# only a comment, without an end", "[keep]\r\npath = 'keep.db' # mine\r\n", "",
    "[connectors]\nx.type = 'local.mail'\nx.path = 'm'\n", "# ünï\n\n\n[policy]\nsettle_s = 5\n\n",
])
def test_the_rest_of_keep_toml_stays_as_it_was(bank: Place, text: str) -> None:
    file = bank.folder / "keep.toml"
    file.write_bytes(text.encode())
    file.chmod(0o640)
    bank.type("connect", *KEY, "--secret", "password=env:BANK_RIGHT")
    after = file.read_bytes().decode()
    assert after.startswith(text)
    assert ("\r\n[connectors.bank]\r\n" in after) is ("\r\n" in text)
    old, new = tomllib.loads(text), tomllib.loads(after)
    assert new.pop("connectors") == {**old.pop("connectors", {}), "bank": table(bank)}
    assert new == old
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_keep_toml_that_cannot_be_added_to_is_left_alone_and_the_table_is_shown(bank: Place) -> None:
    text = "connectors = { x = { type = 'local.mail', path = 'm', create = true } }\n"
    (bank.folder / "keep.toml").write_text(text)
    said = silent(bank.type("connect", *KEY, "--secret", "password=env:BANK_RIGHT", code=2))
    assert "Add this to it yourself:\n[connectors.bank]" in said
    assert (bank.folder / "keep.toml").read_text() == text


def test_a_keep_toml_is_made_where_there_is_none(bank: Place) -> None:
    (bank.folder / "keep.toml").unlink()
    bank.type("connect", "mail", "local.mail", "--set", "path=mail", "--set", "create=true")
    assert "ctx.mail" in bank.type("doctor", code=None).stdout
    assert not (bank.folder / "keep.secrets").exists()  # nothing to keep


def test_without_a_place_for_the_key_nothing_is_written(bank: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from keyring.backends.fail import Keyring

    monkeypatch.delenv("KEEP_KEY_FILE")
    monkeypatch.setattr("keyring.get_keyring", Keyring)
    before = (bank.folder / "keep.toml").read_bytes()
    said = silent(bank.type("connect", *KEY, "--secret", "password=env:BANK_RIGHT", code=1))
    assert "no place for the key" in said
    assert (bank.folder / "keep.toml").read_bytes() == before
    assert not (bank.folder / "keep.secrets").exists()


TYPED = """
import sys
from keepai import connectors
connectors.TYPES = {**connectors.TYPES, "test.bank": "tests.cli.bank:Bank"}
from keepai.doors.cli.main import main
sys.argv = ["keep", *sys.argv[1:]]
main()
"""


def at_terminal(place: Place, args: list[str], answers: list[tuple[str, str]]) -> str:
    """Type `answers` at a real terminal, each when its question is shown; gives all that was on the screen."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen([sys.executable, "-c", TYPED, *args], cwd=place.folder, env=env, start_new_session=True,
                               stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    screen, end = "", time.monotonic() + 30
    os.set_blocking(ours, False)
    while time.monotonic() < end:
        try:
            screen += os.read(ours, 4096).decode()
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # the other end is closed
            break
        if answers and answers[0][0] in screen.rpartition("\x00")[2]:
            screen += "\x00"
            time.sleep(0.05)  # until the echo is off
            os.write(ours, answers.pop(0)[1].encode() + b"\n")
    os.close(ours)
    assert process.wait(timeout=10) is not None
    assert not answers, f"never asked for {answers[0][0]!r}: {screen}"
    return screen


def test_a_person_is_asked_and_what_is_secret_is_not_shown(bank: Place) -> None:
    screen = at_terminal(bank, ["connect", "bank", "test.bank"], [
        ("url:", "https://typed.example"), ("It also takes port (25), tls (true), folder.", "prot=26"),
        ("It must be KEY=VALUE, with one of port, tls, folder.", ""), ("password", WRONG), ("token", ""),
        ("nevertheless?", "n"),
    ])
    assert "Nothing was written or stored" in screen
    assert WRONG not in screen
    assert "bank" not in (bank.folder / "keep.toml").read_text()
    screen = at_terminal(bank, ["connect", "bank", "test.bank", "--set", "tls=no"], [
        ("url:", "https://typed.example"), ("go on:", "port=26"), ("go on:", ""), ("password", RIGHT), ("token", ""),
    ])
    assert "ctx.bank answers" in screen
    assert RIGHT not in screen
    assert table(bank) == {"type": "test.bank", "url": "https://typed.example", "tls": False, "port": 26}
    assert stored(bank)["password"] == RIGHT


@pytest.mark.parametrize(("annotation", "text", "meant"), [
    ("str", "993", "993"), (str, "true", "true"), ("str | None", "5", "5"), ("str | os.PathLike[str]", "a b", "a b"),
    ("int", "993", 993), (int, "993", 993), ("float", "2", 2), ("float | None", "2.5", 2.5), ("bool", "true", True),
    ("bool", "No", False), ("list[str]", "https://a, https://b", ["https://a", "https://b"]),
    ("list[str] | None", '["a, b"]', ["a, b"]), ("dict[str, str]", '{ a = "b" }', {"a": "b"}), ("int", "many", "many"),
    (inspect.Parameter.empty, "5", "5"),
])
def test_a_typed_setting_means_what_its_type_says(annotation: object, text: str, meant: object) -> None:
    parameter = inspect.Parameter("x", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    assert setting("x", text, parameter) == meant


# -- secrets ---------------------------------------------------------------------------------------


@pytest.fixture
def connected(bank: Place) -> Place:
    """A place with a connection whose secrets are stored."""
    bank.type("connect", *KEY, "--secret", "password=env:BANK_RIGHT")
    return bank


def test_the_list_shows_names_and_times_and_no_value(connected: Place) -> None:
    said = silent(connected.type("secrets", "list"))
    assert "password" in said
    listed = connected.json("secrets", "list")
    assert [(each["connection"], each["secret"], each["state"]) for each in listed] == [
        ("bank", "password", "stored"), ("bank", "token", "stored")]
    assert all(each["set_at"].endswith("Z") for each in listed)
    connected.type("secrets", "delete", "bank", "token")
    assert [each["state"] for each in connected.json("secrets", "list")] == ["stored", "missing"]
    (connected.folder / "keep.toml").write_text(SETTINGS)
    assert [each["state"] for each in connected.json("secrets", "list")] == ["unused"]


def test_the_list_says_so_where_no_secret_is_needed(place: Place) -> None:
    assert "No connection" in place.type("secrets", "list").stdout
    assert place.json("secrets", "list") == []


def test_a_secret_is_set_from_stdin_and_the_others_stay(connected: Place) -> None:
    silent(connected.type("secrets", "set", "bank", "password", stdin=f"{WRONG}\n"))
    assert stored(connected) == {"password": WRONG, "token": RENEWED}
    assert connected.json("secrets", "set", "bank", "password", "--from", "env:BANK_RIGHT") == {
        "connection": "bank", "secret": "password"}
    assert stored(connected)["password"] == RIGHT
    said = silent(connected.type("secrets", "set", "bank", "password", "--from", RIGHT, code=2))
    assert "not taken from the command line" in said


def test_a_secret_that_nobody_would_use_is_not_stored(connected: Place) -> None:
    def refused(name: str, secret: str, stdin: str = RIGHT, code: int = 1) -> str:
        return silent(connected.type("secrets", "set", name, secret, stdin=stdin, code=code))

    assert "Did you mean 'password'?" in refused("bank", "pasword")
    assert "Did you mean 'bank'?" in refused("bnak", "password")
    assert "It needs none" in refused("gmail", "password")
    assert "is empty" in refused("bank", "password", "\n", 2)


def test_a_secret_that_is_too_short_to_be_found_is_told(connected: Place) -> None:
    assert "fewer than 6 characters" in connected.type("secrets", "set", "bank", "password", stdin="12345").stderr


def test_a_secret_that_can_be_guessed_is_told_when_it_is_stored_and_by_the_doctor(connected: Place) -> None:
    said = connected.type("secrets", "set", "bank", "password", stdin="Summer2024!").stderr
    assert "password can be guessed: it looks like one of about 2^20 values" in said
    assert "Summer" not in said
    doctor = [each for each in connected.json("doctor", code=1) if "can be guessed" in each["said"]]
    assert [(each["name"], each["state"], each["do"]) for each in doctor] == [
        ("secrets", "warn", "Then say: keep secrets set bank password")]
    assert "Summer" not in json.dumps(doctor)
    said = connected.type("secrets", "set", "bank", "password", stdin="3f1c9a77e0b24d5c8a6e").stderr
    assert "guessed" not in said
    assert not [each for each in connected.json("doctor", code=1) if "can be guessed" in each["said"]]


def test_deleting_says_what_is_gone(connected: Place) -> None:
    assert connected.json("secrets", "delete", "bank", "token") == {"connection": "bank", "deleted": ["token"]}
    assert "bank.password" in silent(connected.type("secrets", "delete", "bank"))
    assert "keep secrets list" in silent(connected.type("secrets", "delete", "bank", code=1))


def test_rotating_keeps_every_secret_and_changes_the_key(connected: Place) -> None:
    key = Path(os.environ["KEEP_KEY_FILE"])
    before, old = stored(connected), key.read_text()
    assert connected.json("secrets", "rotate") == {"path": "keep.secrets", "key": "file", "secrets": 2}
    assert stored(connected) == before
    assert key.read_text() != old


def test_a_passphrase_is_rotated_by_two_variables(connected: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "KEEP_NEW_PASSPHRASE" in silent(connected.type("secrets", "rotate", "--to", "passphrase", code=2))
    monkeypatch.setenv("KEEP_NEW_PASSPHRASE", "correct horse")
    assert "Restart a running host" in silent(connected.type("secrets", "rotate", "--to", "passphrase"))
    monkeypatch.delenv("KEEP_KEY_FILE")
    monkeypatch.setenv("KEEP_PASSPHRASE", "correct horse")
    assert "answers" in silent(connected.type("connect", "bank", "test.bank"))
    monkeypatch.setenv("KEEP_PASSPHRASE", "wrong horse")
    assert "is not the one" in silent(connected.type("connect", "bank", "test.bank", code=1))


def test_the_key_file_may_stand_in_keep_toml(bank: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEEP_KEY_FILE")
    file = bank.folder / "keep.toml"
    file.write_text(file.read_text() + '\n[keep]\nkey_file = "private/keep.key"\n')
    bank.type("connect", *KEY, "--secret", "password=env:BANK_RIGHT")
    assert (bank.folder / "private" / "keep.key").exists()
    file.write_text(file.read_text().replace('"private/keep.key"', "5"))
    assert "key_file must be the name of a file" in bank.type("status", code=2).stderr


def test_a_host_says_at_its_start_that_the_secrets_cannot_be_read_and_starts(connected: Place) -> None:
    Path(os.environ["KEEP_KEY_FILE"]).chmod(0o644)
    said = silent(connected.type("dev", "--once"))
    assert "Other users may read the key" in said
    assert "Nothing more is due now" in said


def test_a_host_at_a_terminal_asks_for_the_passphrase_once_and_does_not_show_it(
    connected: Place, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEEP_NEW_PASSPHRASE", "correct horse")
    connected.type("secrets", "rotate", "--to", "passphrase")
    monkeypatch.delenv("KEEP_NEW_PASSPHRASE")
    screen = at_terminal(connected, ["dev", "--once"], [("Passphrase of the secrets", "correct horse")])
    assert "correct" not in screen
    assert "Nothing more is due now" in screen
    screen = at_terminal(connected, ["dev", "--once"], [("Passphrase of the secrets", "wrong horse")])
    assert screen.count("Passphrase") == 1
    assert "is not the one" in screen


# -- where else a secret might show ----------------------------------------------------------------


def test_a_secret_in_keep_toml_is_told_with_its_line_and_not_repeated(bank: Place) -> None:
    for line in (f'password = "{RIGHT}"', f'pasword = "{RIGHT}"', f'port = "{RIGHT}"', f'tls = "{RIGHT}"'):
        text = f'{SETTINGS}\n[connectors.bank]\ntype = "test.bank"\nurl = "x"\n{line}\n'
        (bank.folder / "keep.toml").write_text(text)
        for args in (("doctor",), ("check", "flow.js"), ("dev", "--once"), ("secrets", "list")):
            for more in ((), ("--json",)):
                result = bank.type(*args, *more, code=None)
                assert result.exit_code in (1, 2)
                assert RIGHT not in result.stdout + result.stderr
        if line.startswith("password"):
            assert "keep.toml:" in result.stderr
            assert "keep secrets set bank password" in result.stderr
    (bank.folder / "keep.toml").write_text(SETTINGS)


def test_the_doctor_knows_about_secrets(connected: Place) -> None:
    def lines(code: int | None = None) -> list[tuple[str, str]]:
        result = connected.type("doctor", "--json", code=code)
        silent(result)
        found = [each for each in json.loads(result.stdout) if each["name"] == "secrets"]
        return [(each["state"], each["said"] + each["do"]) for each in found]

    assert lines() == [("ok", "2 secrets in keep.secrets, its key: file")]
    connected.type("secrets", "delete", "bank", "token")
    [_, (state, said)] = lines()
    assert state == "warn"
    assert "keep secrets set bank token" in said
    (connected.folder / "keep.secrets").chmod(0o644)
    [(state, said)] = lines()  # the check has renewed the token meanwhile
    assert (state, "chmod 600 keep.secrets" in said) == ("warn", True)
    Path(os.environ["KEEP_KEY_FILE"]).chmod(0o644)
    [(state, said)] = lines(1)
    assert (state, "Other users may read" in said) == ("fail", True)
    (connected.folder / "keep.secrets").write_text("{}")
    [(state, said)] = lines(1)
    assert (state, "is damaged, or another program changed it" in said) == ("fail", True)


def test_the_doctor_repeats_no_secret_that_a_check_says(connected: Place) -> None:
    connected.type("secrets", "set", "bank", "password", stdin=WRONG)
    said = silent(connected.type("doctor", code=1))
    assert "does not know '[secret bank.password]'" in " ".join(said.split())
    assert "secrets" not in [each["name"] for each in connected.json("--config", _plain(connected), "doctor", code=0)]


def _plain(place: Place) -> str:
    """A keep.toml elsewhere, without connections that need a secret."""
    folder = place.folder / "plain"
    folder.mkdir()
    (folder / "keep.toml").write_text(SETTINGS)
    return str(folder / "keep.toml")
