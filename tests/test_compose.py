"""The hosts in containers, as far as it can be told without a container engine: form, names, commands, rights."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from keepai.config import table
from keepai.ledger.postgres.connection import OLDEST
from tests.test_docs import misfit

ROOT = Path(__file__).resolve().parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
HOSTS = [name for name in SERVICES if name.startswith("host-")]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8").splitlines()


def test_two_hosts_work_on_one_ledger_in_a_postgres_that_keep_accepts() -> None:
    assert len(HOSTS) == 2
    assert len({SERVICES[name]["environment"]["KEEP_LEDGER"] for name in HOSTS}) == 1
    assert int(SERVICES["postgres"]["image"].partition(":")[2]) >= OLDEST
    assert "--data-checksums" in SERVICES["postgres"]["environment"]["POSTGRES_INITDB_ARGS"]
    assert "encoding 'UTF8'" in COMPOSE["configs"]["role"]["content"]


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_is_started_by_a_command_that_keep_has(name: str) -> None:
    assert misfit(shlex.join(SERVICES[name]["command"])) is None
    image = next(line.removeprefix("CMD ") for line in DOCKERFILE if line.startswith("CMD "))
    assert yaml.safe_load(image) == SERVICES[name]["command"]


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_has_variables_that_are_settings_and_no_secret_stands_in_the_file(name: str) -> None:
    given = SERVICES[name]["environment"]
    known = {each.variable for each in table()} | {"PGPASSWORD"}
    assert given.keys() <= known
    secret = [value for key, value in given.items() if key != "KEEP_LEDGER"]
    assert all(re.fullmatch(r"\$\{\w+:\?[^}]+\}", value) for value in secret), "without one, compose must say so"
    assert re.fullmatch(r"postgresql://keep@postgres/keep", given["KEEP_LEDGER"]), "the address has no password"


def test_every_volume_and_config_that_a_service_has_is_declared_and_hosts_share_home_and_locks() -> None:
    for service in SERVICES.values():
        assert {each.partition(":")[0] for each in service["volumes"]} <= COMPOSE["volumes"].keys()
        assert {each["source"] for each in service.get("configs", ())} <= COMPOSE["configs"].keys()
        assert service.get("depends_on", {}).keys() <= SERVICES.keys()
    first, second = (SERVICES[name]["volumes"] for name in HOSTS)
    assert first == second == ["home:/keep", "locks:/tmp"]


def test_a_host_has_no_rights_in_its_container() -> None:
    user = next(line for line in reversed(DOCKERFILE) if line.startswith("USER "))
    assert user not in ("USER root", "USER 0")
    assert DOCKERFILE.index(user) > max(n for n, line in enumerate(DOCKERFILE) if line.startswith("RUN "))
    for name in HOSTS:
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert SERVICES[name]["read_only"] is True
        assert "privileged" not in SERVICES[name]


def test_the_image_gets_what_the_package_is_built_from_and_nothing_else() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[:1] not in ("", "#")]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    assert not {name for name in let_in if not (ROOT / name).exists()}
    assert {"src", "pyproject.toml", "hatch_build.py", "package.json", "package-lock.json"} <= let_in
    assert not {".env", ".git", "tests"} & let_in
