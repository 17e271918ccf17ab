"""Connectors from keep.toml: all wrong settings are reported at once, with the fix."""

from pathlib import Path
from typing import Any

import pytest

from keepai.connectors import TYPES, load, make
from keepai.connectors.base import Connector
from keepai.model.errors import ConfigError


def test_every_type_can_be_loaded() -> None:
    assert all(issubclass(load(name), Connector) for name in TYPES)


def test_a_table_becomes_a_connector_of_that_name(tmp_path: Path) -> None:
    connector = make("local.mail", "gmail", {"path": str(tmp_path / "box"), "create": True})
    assert connector.name == "gmail"
    assert (tmp_path / "box" / "new").is_dir()
    assert connector.account == str(tmp_path / "box")


def test_an_unknown_type_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'local\.mail'\?"):
        make("local.mial", "gmail", {})
    with pytest.raises(ConfigError, match=r"There are: .*local\.mail"):
        make("quantum", "gmail", {})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ["'path' is missing"]),
        (
            {"pth": "x", "create": "yes"},
            ["'path' is missing", "did you mean 'path'?", "'create' must be true or false"],
        ),
        ({"path": 5, "name": "x"}, ["'path' must be a string, not 5", "'name' is unknown"]),
        ({"path": True}, ["'path' must be a string"]),
    ],
)
def test_wrong_settings_are_all_told(settings: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make("local.mail", "gmail", settings)
    assert "[connectors.gmail]" in caught.value.message
    assert all(each in caught.value.message for each in told)


def test_a_name_that_scripts_cannot_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="publish"):
        make("local.sheets", "publish", {"path": str(tmp_path)})
