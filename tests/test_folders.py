"""Servers of the tests start wherever the project was cloned."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.connectors.mail_servers import Dovecot, why_not

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts them as another user")


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that only root can enter, with the temporary folder inside it and a strict umask."""
    made = tmp_path / "a closed folder"
    made.mkdir(mode=0o700)
    (made / "tmp").mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(made / "tmp"))
    before = os.umask(0o077)
    yield made
    os.umask(before)


@pytest.mark.skipif(postgres.binaries() is None, reason="no PostgreSQL")
def test_postgres_starts_from_a_package_in_a_closed_folder(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = postgres.binaries()
    package = found.parent.parent
    for each in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(each, closed / each.name, symlinks=True)
    monkeypatch.setattr(postgres, "binaries", lambda: closed / found.relative_to(package.parent))
    with postgres.server() as server:
        assert server.run("select 1") == [(1,)]
    assert not server.folder.exists()


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_dovecot_starts_with_a_closed_temporary_folder(closed: Path) -> None:
    server = Dovecot()
    try:
        server.fresh()
        server.put(b"Subject: hello\r\n\r\n")
        assert server.count("INBOX") == 1
    finally:
        server.close()
