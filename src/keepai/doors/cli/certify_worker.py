"""A process that tries one script for a host: reads it and its cases as JSON, and prints as JSON what came of it.

That is the Certification, or only the results of its cases.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from ...config import Settings, load
from ...model.errors import KeepError
from ...testing import fixtures
from ...testing.cases import run
from ...testing.certify.try_script import try_script
from .wiring import make_connector


def main() -> None:
    """Try the script that is asked for."""
    asked = json.load(sys.stdin)
    try:
        settings = load(asked["config"], None, os.environ, make_connector)
        answer = asyncio.run((_certified if asked["work"] == "certify" else _tested)(settings, **asked))
    except KeepError as error:
        answer = {"error": error.message}
    sys.stdout.write(json.dumps(answer))


async def _certified(
    settings: Settings, source: str, cases: str | None, config: str, script: str, **_: str,
) -> dict[str, Any]:
    done = await try_script(
        source, cases, settings.connectors, settings.policy, Path(config).parent, script=script)
    return done.to_json()


async def _tested(settings: Settings, source: str, cases: str, config: str, script: str, **_: str) -> dict[str, Any]:
    file = Path(config).parent / (script.removesuffix(".js") + fixtures.SUFFIX)
    results = [await run(source, each, settings.connectors, settings.policy)
               for each in fixtures.parse(cases, file).cases]
    return {"results": [each.to_json() for each in results]}


if __name__ == "__main__":
    main()
