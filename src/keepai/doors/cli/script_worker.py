"""A process that tries one script for a host: reads what is asked as JSON, prints what came of it as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...config import Settings, load
from ...model.errors import KeepError, ScriptInvalid
from ...testing import cases
from ...testing.certify.try_script import try_script
from ...testing.fixtures import parse
from ...testing.rehearsal import rehearse
from .wiring import give_secrets, make_connector


async def _certified(settings: Settings, asked: Mapping[str, Any]) -> Any:
    done = await try_script(
        asked["source"], asked["cases"], settings.connectors, settings.policy, Path(asked["config"]).parent,
        script=asked["script"])
    return done.to_json()


async def _tested(settings: Settings, asked: Mapping[str, Any]) -> Any:
    given = parse(asked["cases"], Path(asked["config"]).parent / "cases.test.toml").cases
    return [(await cases.run(asked["source"], each, settings.connectors, settings.policy)).to_json() for each in given]


async def _rehearsed(settings: Settings, asked: Mapping[str, Any]) -> Any:
    done = await rehearse(
        settings.ledger, asked["source"], None, give_secrets(settings).connectors, settings.policy,
        configured=settings.grants, reads_granted_only=True)
    return {**done.to_json(), "deployment": done.deployment.to_json()}


_TRIES: Mapping[str, Callable[[Settings, Mapping[str, Any]], Coroutine[Any, Any, Any]]] = {
    "certify": _certified, "test": _tested, "rehearse": _rehearsed,
}


def main() -> None:
    """Try the script that is asked for."""
    asked = json.load(sys.stdin)
    answer: dict[str, Any]
    try:
        settings = replace(load(asked["config"], None, os.environ, make_connector), ledger=asked["ledger"])
        answer = {"result": asyncio.run(_TRIES[asked["what"]](settings, asked))}
    except ScriptInvalid as error:
        answer = {"findings": [vars(each) for each in error.findings]}
    except KeepError as error:
        answer = {"error": error.message}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
