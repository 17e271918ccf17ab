"""`keep connect` with a browser: the answer with the right state counts, and neither code nor token shows anywhere."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from email.message import Message
from urllib.error import HTTPError
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

import pytest

from keepai.doors.cli import signing
from keepai.testing.contract import CANARY
from keepai.testing.loopback import HttpReply, Loopback, instead
from tests import doors
from tests.connectors.services.google import SECRETS, GmailService

from . import shapes
from .conftest import Place
from .test_connect import at_terminal, stored

CONNECT = ("connect", "gmail2", "google.gmail")
CLIENT = ("--secret", "client_secret=env:CLIENT_SECRET")


class World:
    """A place, Google on loopback, and everything that was said."""

    def __init__(self, place: Place, service: GmailService, server: Loopback) -> None:
        self.place, self.service, self.server = place, service, server
        url = server.url
        given = {"account": "ann@example.com", "client_id": "client-1", "networks": "127.0.0.1",
                 "api": f"{url}/gmail/v1/", "token_url": f"{url}/token", "auth_url": f"{url}/auth"}
        self.settings = tuple(word for key, value in given.items() for word in ("--set", f"{key}={value}"))
        self.started: list[subprocess.Popen[str]] = []

    def sign_in(self, *more: str) -> tuple[subprocess.Popen[str], str]:
        """Start a sign-in in a process of its own; gives it and the address that it shows."""
        process = self.place.spawn(*CONNECT, "--sign-in", *more)
        self.started.append(process)
        assert process.stderr is not None
        shown = [process.stderr.readline() for _ in range(3)]
        assert shown[0] == "Open this address to sign in:\n", shown
        assert "at most 5 minutes" in shown[2]
        assert CANARY not in "".join(shown)
        return process, shown[1].strip()

    def ends(self, process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
        """What it said until its end: stdout and stderr."""
        out, err = process.communicate(timeout=30)
        assert process.returncode == code, out + err
        assert CANARY not in out + err
        assert "Traceback" not in err
        assert "xception" not in err
        return out, err


@pytest.fixture
def world(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    monkeypatch.setenv("KEEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "keep.key"))
    monkeypatch.setenv("CLIENT_SECRET", SECRETS["client_secret"])
    for each in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(each, raising=False)
    service = GmailService()
    with Loopback(service.handle) as server:
        made = World(place, service, server)
        yield made
        for process in made.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
    for name, content in place.files().items():
        assert CANARY.encode() not in content, name


def follow(address: str) -> tuple[int, Message, str]:
    """What a browser shows in the end."""
    try:
        with urlopen(address, timeout=10) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def home(address: str) -> str:
    """Where the answer is waited for."""
    return dict(parse_qsl(urlsplit(address).query))["redirect_uri"]


def test_a_person_who_signs_in_need_not_bring_a_refresh_token(world: World) -> None:
    process, address = world.sign_in(*world.settings, *CLIENT, "--json")
    status, headers, page = follow(address)
    assert (status, "You can close this page" in page, CANARY in page) == (200, True, False)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"
    out, _ = world.ends(process)
    done = json.loads(out)
    shapes.check(CONNECT, done)
    assert (done["checked"], done["added"]) == (True, True)
    kept = stored(world.place, "gmail2")
    assert kept["client_secret"] == SECRETS["client_secret"]
    assert kept["refresh_token"] in world.service.refresh_tokens - {SECRETS["refresh_token"]}
    assert "ctx.gmail2 answers" in world.place.type(*CONNECT).stdout


def test_whatever_else_comes_to_the_port_is_refused_and_the_waiting_goes_on(world: World) -> None:
    process, address = world.sign_in(*world.settings, *CLIENT)
    place = urlsplit(home(address))
    with socket.create_connection(("127.0.0.1", place.port or 0)):  # as browsers do that connect ahead and say nothing
        assert follow(f"{home(address)}favicon.ico")[0] == 404
        state = dict(parse_qsl(urlsplit(address).query))["state"]
        for query in ("", f"?code=4/{CANARY}", f"?state=&code=4/{CANARY}", f"?state={state[:-1]}&code=4/{CANARY}",
                      f"?state={state}x&error=access_denied", "?error=access_denied", "?state=%FF&code=1",
                      "?" + "&".join(["a=1"] * 100)):
            status, _, page = follow(home(address) + query)
            assert (status, CANARY in page) == (403, False), query
        assert follow(f"{home(address)}?state={state}")[0] == 400
        for garbage in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET //[ HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n",
                        b"x" * 40_000):
            with socket.create_connection(("127.0.0.1", place.port or 0)) as other:
                other.sendall(garbage)
        assert world.service.codes == {}
        assert follow(address)[0] == 200
        world.ends(process)
    assert world.service.renewals == 1


def test_idle_connections_do_not_keep_the_answer_out(world: World) -> None:
    process, address = world.sign_in(*world.settings, *CLIENT)
    idle = doors.hold(("127.0.0.1", urlsplit(home(address)).port or 0), 3 * signing.AT_ONCE_MAX)
    assert follow(address)[0] == 200
    doors.let_go(idle)
    _, err = world.ends(process)
    assert err.count("for another one") <= 2  # the first, and how many more


def test_a_person_who_does_not_allow_it_changes_nothing(world: World) -> None:
    before = world.place.files()
    world.service.denies = "access_denied"
    process, address = world.sign_in(*world.settings, *CLIENT)
    assert "was not allowed in" in follow(address)[2]
    _, err = world.ends(process, 1)
    assert "did not allow it. Nothing was written or stored." in err
    assert world.place.files() == before


@pytest.mark.parametrize(("said", "told"), [("server_error", "an error (server_error)."), (CANARY, "an error.")])
def test_another_error_is_named_if_it_is_a_word(world: World, said: str, told: str) -> None:
    world.service.denies = said
    process, address = world.sign_in(*world.settings, *CLIENT)
    follow(address)
    assert f"ended with {told} Nothing was written" in world.ends(process, 1)[1]


def test_somebody_else_who_signs_in_is_refused_and_nothing_is_stored(world: World) -> None:
    before = world.place.files()
    world.service.person = "eve@example.com"
    process, address = world.sign_in(*world.settings, *CLIENT)
    follow(address)
    assert "for eve@example.com, but the setting account is ann@example.com" in world.ends(process, 1)[1]
    assert world.place.files() == before


def test_a_code_that_google_does_not_take_is_told_without_it(world: World) -> None:
    process, address = world.sign_in(*world.settings, *CLIENT)
    refused = HttpReply(400, {"error": "invalid_grant", "error_description": CANARY})
    with world.server.misbehaving(instead(refused), lambda request: request.path == "/token"):
        follow(address)
        assert "(invalid_grant): it took too long" in world.ends(process, 1)[1]


def test_an_access_that_was_taken_back_is_given_again_by_signing_in_again(world: World) -> None:
    process, address = world.sign_in(*world.settings, *CLIENT)
    follow(address)
    world.ends(process)
    table, before = (world.place.folder / "keep.toml").read_bytes(), stored(world.place, "gmail2")
    world.service.revoked = True
    said = world.place.type(*CONNECT, code=1).stderr
    assert "Sign in again" in said
    assert "With --sign-in you sign in with a browser" in said
    process, address = world.sign_in()  # the client_secret is stored
    follow(address)
    world.ends(process)
    after = stored(world.place, "gmail2")
    assert (world.place.folder / "keep.toml").read_bytes() == table
    assert after["client_secret"] == before["client_secret"]
    assert after["refresh_token"] != before["refresh_token"]


def test_nobody_is_waited_for_longer_than_a_while(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "WAIT_S", 0.1)
    before = world.place.files()
    said = world.place.type(*CONNECT, *world.settings, *CLIENT, "--sign-in", code=1).stderr
    assert "Nobody signed in within" in said
    assert world.place.files() == before


def test_ctrl_c_says_what_to_do(world: World) -> None:
    process, _ = world.sign_in(*world.settings, *CLIENT)
    process.send_signal(signal.SIGINT)
    _, err = world.ends(process, 1)
    assert "Nobody signed in. Nothing was written or stored. Say the same again" in err
    assert "--secret refresh_token=SOURCE" in err


def test_what_makes_no_sense_is_told_before_anybody_signs_in(world: World) -> None:
    def told(*args: str) -> str:
        return world.place.type(*args, "--sign-in", code=2).stderr

    assert "Without the client_secret nobody can sign in" in told(*CONNECT, *world.settings)
    assert "leave one of them out" in told(*CONNECT, *world.settings, *CLIENT, "--secret", "refresh_token=env:HOME")
    assert "Nobody can sign in to this type" in told("connect", "m", "local.mail", "--set", "path=m")
    assert world.server.seen == []


def test_a_program_that_gives_a_refresh_token_is_asked_for_no_browser(
    world: World, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REFRESH_TOKEN", SECRETS["refresh_token"])
    result = world.place.type(*CONNECT, *world.settings, *CLIENT, "--secret", "refresh_token=env:REFRESH_TOKEN")
    assert "ctx.gmail2 answers" in result.stdout
    assert "Open this address" not in result.stderr


# -- at a terminal ---------------------------------------------------------------------------------


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A browser that follows what it is given, and says a lot; gives what it was given."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "browser.py").write_text(
        "import sys, pathlib, urllib.request\n"
        "print('opened in an existing session')\n"
        "pathlib.Path(__file__).with_name('opened').write_text(sys.argv[1])\n"
        "urllib.request.urlopen(sys.argv[1], timeout=10).read()\n", "utf-8")
    monkeypatch.setenv("BROWSER", f"{shlex.join([sys.executable, str(folder / 'browser.py')])} %s")
    return lambda: [each.read_text() for each in folder.glob("opened")]


def test_a_person_presses_enter_and_the_browser_opens(world: World, browser: Callable[[], list[str]]) -> None:
    screen = at_terminal(world.place, [*CONNECT, *world.settings], [
        ("client_secret", SECRETS["client_secret"]), ("Enter to sign in with a browser", ""),
    ])
    assert "ctx.gmail2 answers" in screen
    assert "existing session" not in screen
    assert CANARY not in screen
    [opened] = browser()
    assert opened in screen.replace("\r\n", "\n").split("\n")


def test_a_person_who_has_a_refresh_token_types_it(world: World, browser: Callable[[], list[str]]) -> None:
    screen = at_terminal(world.place, [*CONNECT, *world.settings], [
        ("client_secret", SECRETS["client_secret"]), ("refresh_token", SECRETS["refresh_token"]),
    ])
    assert "ctx.gmail2 answers" in screen
    assert CANARY not in screen
    assert browser() == []


def test_a_person_signs_in_again_with_what_is_stored(world: World, browser: Callable[[], list[str]]) -> None:
    process, address = world.sign_in(*world.settings, *CLIENT)
    follow(address)
    world.ends(process)
    assert browser() == []  # nobody sat at a terminal
    screen = at_terminal(world.place, [*CONNECT, "--sign-in"], [("Enter to keep the present one", "")])
    assert "ctx.gmail2 answers" in screen
    assert len(browser()) == 1


def test_a_screen_is_what_a_browser_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert not signing.has_screen({"DISPLAY": ""})
    assert signing.has_screen({"WAYLAND_DISPLAY": "wayland-0"})
    assert signing.has_screen({"BROWSER": "firefox"})
    monkeypatch.setattr(sys, "platform", "darwin")
    assert signing.has_screen({})


def test_no_browser_opens_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def sign_in(offer: object, *, browser: bool) -> dict[str, str]:
        seen.append(browser)
        return {"refresh_token": SECRETS["refresh_token"]}

    monkeypatch.setattr("keepai.doors.cli.connect.sign_in", sign_in)
    monkeypatch.setattr("keepai.doors.cli.secret_input.at_terminal", lambda: True)
    monkeypatch.setattr("keepai.doors.cli.secret_input.ask_unseen", lambda *_, **__: "")
    for more in (("--no-browser",), ()):
        world.place.type(*CONNECT, *world.settings, *CLIENT, "--sign-in", *more, stdin="\n")
    assert seen == [False, True]
