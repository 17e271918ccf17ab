"""What an address says of a ledger, and that a password in it is never shown, however it was mistyped."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepai.model.ledger_address import database_of, has_password, is_address, mistake, shown


@pytest.mark.parametrize(("address", "told"), [
    ("postgresql://keep@db.example.com/keep", "postgresql://keep@db.example.com/keep"),
    ("postgres://keep:s3cret@[::1]:5433/keep", "postgres://keep@[::1]:5433/keep"),
    ("postgresql://keep:s3cret@a:5432,b/keep?target_session_attrs=read-write",
     "postgresql://keep@a:5432,b/keep?target_session_attrs=read-write"),
    ("postgresql:///keep?host=/run/postgresql&password=s3cret&sslmode=require",
     "postgresql:///keep?host=/run/postgresql&password=…&sslmode=require"),
    ("postgresql://keep@db/keep?sslpassword=s3cret", "postgresql://keep@db/keep?sslpassword=…"),
    ("postgresql://keep:s3#cret?x@db/keep", "postgresql://keep@db/keep"),
    ("postgresql://keep:s3/cret@db/keep", "postgresql://…"),
    ("postgresql://keep:s3@cret@db/keep", "postgresql://…"),
    ("postgresql://keep:5/s3cret@db/keep", "postgresql://…"),
])
def test_an_address_is_shown_without_its_password(address: str, told: str) -> None:
    assert is_address(address)
    assert shown(address) == told
    assert (mistake(address) is None) == (told != "postgresql://…")
    assert mistake(address) is None or "cret" not in str(mistake(address))
    assert has_password(address) == ("s3" in address and mistake(address) is None)


def test_a_file_is_shown_as_it_is() -> None:
    assert not is_address(Path("a/keep.db"))
    assert shown(Path("a/keep.db")) == "a/keep.db"


def test_two_addresses_of_one_database_are_told_from_those_of_another() -> None:
    same = ("postgresql://keep@DB:5432/keep", "postgres://ann:s3cret@db/keep?sslmode=require", "postgresql://db/keep")
    other = ("postgresql://keep@db/keep2", "postgresql://keep@db:5433/keep", "postgresql://keep@db2/keep",
             "postgresql:///keep?host=/run/pg", "postgresql:///keep?host=/run/pg2")
    assert len({database_of(each) for each in same}) == 1
    assert len({database_of(each) for each in (same[0], *other)}) == 1 + len(other)
