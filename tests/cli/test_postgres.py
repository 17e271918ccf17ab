"""The command line and the page on a ledger in PostgreSQL: the same commands, the same answers, and no password."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from click.testing import Result

from keepai import Keep
from keepai.config import Settings
from keepai.doors import control
from keepai.doors.web.page_server import PageServer
from keepai.doors.web.site import THREADS
from keepai.ledger.opening import open_ledger
from keepai.model.clock import SystemClock
from keepai.model.errors import LedgerStopped
from tests import postgres
from tests.ledger.stores import PostgresStore
from tests.web.conftest import Served

from .conftest import SETTINGS, Place, until
from .test_hooks import address_of, signed, status_of


class DatabasePlace(Place):
    """A folder whose keep.toml names a database. What every command prints must be without the password."""

    store: PostgresStore

    @property
    def address(self) -> str:
        """As people write it, without the password."""
        return self.store.server.url(database=self.store.database)

    def type(self, *args: str, **how: Any) -> Result:
        result = super().type(*args, **how)
        assert postgres.PASSWORD not in result.stdout + result.stderr
        return result


@pytest.fixture
def database(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabasePlace]:
    """A place with the example, whose ledger is to be in an empty database."""
    made = DatabasePlace(place.folder)
    made.store = PostgresStore()
    made.store.server.run(f"create database {made.store.database}")
    (place.folder / "keep.toml").write_text(f'[keep]\nledger = "{made.address}"\n\n{SETTINGS}', "utf-8")
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    yield made
    assert not [name for name, content in made.files().items() if postgres.PASSWORD.encode() in content]
    assert not list(place.folder.glob("keep.db*"))
    made.store.drop()


def test_everything_that_is_typed_works_on_a_database(database: DatabasePlace) -> None:
    assert "There is no ledger at" in database.type("status", code=1).stderr
    database.deliver("Invoice 1")
    database.type("deploy", "flow.js", "--dry-run")
    database.type("status", code=1)
    assert "deployed" in database.type("deploy", "flow.js", "--grant", "gmail.search",
                                       "--grant", "sheets.appendRow=ask").stdout
    assert database.address in database.type("dev", "--once", code=4).stderr
    [question] = database.json("todo", code=4)
    assert "runs on      no host runs it" in database.type("todo", code=4).stdout
    [run] = [each for each in database.json("runs", "email-to-sheets") if each["status"].startswith("paused")]
    [came] = database.json("inputs", "email-to-sheets")
    for looks in (["runs"], ["inputs"], ["outputs"], ["items"], ["logs"], ["graph", "email-to-sheets"], ["digest"],
                  ["blast", "email-to-sheets"], ["show", run["id"]], ["why", came["id"]], ["rollback", "--list"],
                  ["db", "prune", "--dry-run"]):
        words = [*looks, "email-to-sheets"] if looks[0] in ("logs", "rollback") else looks
        looked = database.type(*words)
        assert looked.stdout or looked.stderr, words
    assert "No host is running" in database.type("status", code=4).stdout
    assert database.json("status", code=4)["host"] is False

    database.type("approve", question["id"])
    database.type("dev", "--once")
    shown = database.json("status")["shown"]
    assert "It would make no mutation now." in database.type("deploy", "flow.js", "--dry-run").stdout
    assert database.json("status")["shown"] == shown, "a rehearsal leaves nothing"
    assert [line.split(",")[1] for line in database.rows()] == ["Invoice 1"]
    assert database.type("outputs").stdout.startswith("applied")
    checked = database.json("db", "check")
    assert (checked["sound"], checked["path"]) == (True, database.address)
    assert database.type("db", "check").stdout.startswith(f"{database.address}\n")


def test_commands_reach_the_host_of_a_database_and_webhooks_come_in(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("KEEP_KEY_FILE", str(tmp_path_factory.mktemp("key") / "keep.key"))
    with (database.folder / "keep.toml").open("a", encoding="utf-8") as file:
        file.write('\n[connectors.payments]\ntype = "webhook.inbox"\n')
    text = (database.folder / "keep.toml").read_text("utf-8")
    (database.folder / "keep.toml").write_text(text.replace("[keep]", '[keep]\nhooks = "127.0.0.1:0"', 1), "utf-8")
    database.type("secrets", "set", "payments", "secret", stdin="the shared secret\n")
    assert (database.folder / "keep.secrets").exists(), "secrets are beside keep.toml"
    database.type("deploy", "flow.js", "--grant", "gmail.search")
    host = database.spawn("serve")
    try:
        assert status_of(f"{address_of(host)}payments", signed("d1")) == 202
        until(lambda: control.is_running(database.address))
        assert database.type("status").stdout.endswith(f"At work: process {host.pid} on {gethostname()}.\n")
        database.type("pause", "email-to-sheets")
        assert database.json("status")["workflows"][0]["status"] == "paused"
        found = {each["name"]: each for each in database.json("doctor")}
        assert (found["host"]["state"], found["ledger"]["state"]) == ("ok", "ok")
        assert "place in the ledger's database" in found["ctx.payments"]["said"]
        assert "would be deployed" in database.type("deploy", "flow.js", "--dry-run").stdout
        [seen] = database.json("hosts")
        assert (seen["pid"], seen["state"], seen["workflows"]) == (host.pid, "at work", 1)
        assert f"at work  1          {host.pid} on " in database.type("hosts").stdout
        assert "is not dead: it was heard" in database.type("host", "dead", seen["id"], code=1).stderr
        database.json("host", "drain", seen["id"][:12])
        host.wait(30)  # it ends by itself
    finally:
        host.send_signal(signal.SIGTERM)
        told = "".join(host.communicate(timeout=30))
    assert (host.returncode, postgres.PASSWORD in told) == (0, False)
    assert "hands over its work and ends: a person said so" in told
    assert database.type("hosts").stdout.startswith("None is running")
    assert not control.is_running(database.address)
    with database.store.server.connect(dbname=database.store.database) as judge:
        assert judge.execute("select count(*) from keep.delivery").fetchall() == [(1,)]


def run_line(line: str) -> str | None:
    """The id of the run that a line of a log is about."""
    return json.loads(line).get("run_id")


def test_each_line_stands_in_the_log_of_the_host_that_did_it(database: DatabasePlace) -> None:
    names, source = ("left", "right"), (database.folder / "flow.js").read_text("utf-8")
    for name in names:
        (database.folder / f"{name}.js").write_text(source.replace("email-to-sheets", name), "utf-8")
        database.type("deploy", f"{name}.js", "--grant", "all")
    served = [database.spawn("serve", "--json") for _ in names]
    logs = []
    try:
        until(lambda: [each["workflows"] for each in database.json("hosts")] == [1, 1])
        host_of = {each["pid"]: each["id"] for each in database.json("hosts")}
        database.deliver("Invoice 1")
        for name in names:
            database.type("run-now", name)
        until(lambda: all(database.type("outputs", name).stdout.startswith("applied") for name in names))
    finally:
        for host in served:  # one after the other: the last one has everything
            host.send_signal(signal.SIGTERM)
            logs.append(host.communicate(timeout=30)[1].splitlines())
    ran = {run["id"]: run["host"] for name in names for run in database.json("runs", name)}
    for host, log in zip(served, logs, strict=True):
        told = [each for each in map(run_line, log) if each]
        assert {ran[each] for each in told} == {host_of[host.pid]}
        assert any("applied sheets.appendRow" in line for line in log)


def test_a_host_elsewhere_is_seen_and_a_command_acts_beside_it(database: DatabasePlace) -> None:
    database.type("deploy", "flow.js", "--grant", "gmail.search")
    ledger = open_ledger(database.address, SystemClock())  # a host without a socket that this command could find
    try:
        assert f"At work: process {os.getpid()} on " in database.type("status").stdout
        assert database.json("status")["host"] is True
        found = {each["name"]: each for each in database.json("doctor")}
        assert found["host"]["said"].startswith(f"at work: process {os.getpid()} on ")
        database.type("pause", "email-to-sheets")  # beside it
        assert database.json("status")["workflows"][0]["status"] == "paused"
    finally:
        asyncio.run(ledger.close())
    assert "No host is running" in database.type("status").stdout


def test_a_host_that_is_silent_counts_as_dead_when_a_person_says_so(database: DatabasePlace) -> None:
    database.type("deploy", "flow.js", "--grant", "gmail.search")
    with database.store.raw() as tables:
        tables.execute(
            "insert into heartbeat (epoch, beat_at, boot, lock, works, knows) "
            "select max(epoch), 0, '', '', 1, 1 from host")
    assert "No host is running" in database.type("status").stdout
    [silent] = database.json("hosts")
    assert (silent["state"], silent["lives"]) == ("silent", False)
    lines = [each for each in database.json("doctor") if each["name"] == "host"]
    assert ["none is running" in lines[0]["said"], "It is not known to be dead." in lines[1]["said"]] == [True, True]
    assert f"say `keep host dead {silent['id']}`" in lines[1]["do"]
    assert "No host of several is 'hst_no'" in database.type("host", "dead", "hst_no", code=1).stderr
    database.json("host", "dead", silent["id"])
    assert database.json("hosts") == []


def test_what_a_database_does_not_need_says_what_to_do(database: DatabasePlace) -> None:
    database.type("deploy", "flow.js")
    for words, told in ((("backup", "x.db"), "pg_dump"), (("vacuum",), "vacuum full")):
        assert told in database.type("db", *words, code=1).stderr
    assert not (database.folder / "x.db").exists()


@pytest.mark.parametrize(("given", "told"), [
    ({"PGPASSWORD": "wrong"}, "PostgreSQL looks for the password in PGPASSWORD and in ~/.pgpass"),
    ({"KEEP_LEDGER": "postgresql://keep:s3cret@127.0.0.1:1/keep"}, "postgresql://keep@127.0.0.1:1/keep failed"),
])
def test_a_database_that_cannot_be_reached_is_told_without_a_password(
    database: DatabasePlace, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], told: str,
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for words in (("status",), ("deploy", "flow.js"), ("dev", "--once"), ("db", "check")):
        said = database.type(*words, code=1).stderr
        assert told in said
        assert "s3cret" not in said
    assert "s3cret" not in database.type("doctor", code=1).stdout


def test_a_moved_ledger_goes_on_in_its_database(database: DatabasePlace) -> None:
    settings = (database.folder / "keep.toml").read_text("utf-8")
    (database.folder / "keep.toml").write_text(f'[keep]\npath = "data/keep.db"\n\n{SETTINGS}', "utf-8")
    (database.folder / "data").mkdir()
    (database.folder / "data" / "keep.secrets").write_text("{}")
    database.deliver("Invoice 1")
    database.type("deploy", "flow.js", "--grant", "all")
    database.type("dev", "--once")
    exposed = database.address.replace("postgres@", f"postgres:{'x' * 8}@", 1)
    assert "Leave it out" in database.type("db", "move", "--to", exposed, code=2).stderr
    moved = database.type("db", "move", "--to", database.address).stdout
    assert f'under [keep] in keep.toml: ledger = "{database.address}"' in moved
    assert "Copy data/keep.secrets to keep.secrets." in moved
    assert f"was moved to {database.address}" in database.type("pause", "email-to-sheets", code=1).stderr
    (database.folder / "keep.toml").write_text(settings, "utf-8")
    assert database.type("outputs").stdout.startswith("applied")
    database.deliver("Invoice 2")
    database.type("run-now", "email-to-sheets")
    database.type("dev", "--once")
    assert len(database.rows()) == 2


async def test_the_page_shows_a_database_and_finds_it_again_after_its_connections_were_lost(
    database: DatabasePlace,
) -> None:
    keep = await Keep(database.address).__aenter__()
    try:
        async with PageServer(keep, Settings(ledger=database.address), port=0) as web:
            page = Served(None, web)  # type: ignore[arg-type]
            await page.sign_in()
            shown = [await page.get("/"), await page.get("/health")]
            assert [each.status for each in shown] == [200, 200]
            assert database.address in shown[1].body
            database.store.server.run(
                f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database.store.database}'")
            shown += [await page.get(path) for path in ["/", "/health"] * THREADS]
            assert {each.status for each in shown} == {200}
            database.store.server.run(f"alter database {database.store.database} allow_connections off")
            database.store.server.run(
                f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database.store.database}'")
            gone = await page.get("/")
            assert (gone.status, "The ledger cannot be read now." in gone.body) == (503, True)
            assert all(postgres.PASSWORD not in each.body for each in (*shown, gone))
    finally:
        with suppress(LedgerStopped):  # the host itself does not come back, and says so
            await keep.close()


# -- where hosts of a database listen ------------------------------------------------------------------


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which sockets of this user's hosts are; its path is short enough for one."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder) / "keep"


async def test_a_host_of_a_database_listens_in_a_folder_of_the_users_own(
    database: DatabasePlace, own_folder: Path,
) -> None:
    async with Keep(database.address) as keep:
        there = control.socket_path(database.address, keep.parts.ledger.host)
        dead = there.with_name(there.name.replace("-hst_", "-hst_0"))
        async with control.ControlSocket(keep, database.address):
            assert there.parent == own_folder
            assert [stat.S_IMODE(each.stat().st_mode) for each in (own_folder, there)] == [0o700, 0o600]
            assert re.fullmatch(r"[0-9a-f]{16}-hst_\w+\.sock", there.name), "nothing of the address is in its name"
            there.rename(dead)  # as if it were of another host
            async with control.ControlSocket(keep, database.address):
                assert dead.exists(), "a host that lives keeps its place"
            exposed = database.address.replace("postgres@", "ann:x@", 1)
            assert control.is_running(exposed), "whoever asks, and with whatever password"
            assert not control.is_running(f"{database.address}2")
        assert dead.exists()
        assert not control.is_running(database.address)
        with pytest.raises(control.NoHost):
            control.ask(database.address, "pause", {"wf": "x"})
        async with control.ControlSocket(keep, database.address):
            assert not dead.exists(), "what a dead host has left is removed"
