"""A process that tries one script for a host: reads it and its cases as JSON, prints the Certification as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from ...config import load
from ...model.errors import KeepError
from ...testing.certify.try_script import try_script
from .wiring import make_connector


def main() -> None:
    """Try the script that is asked for."""
    asked = json.load(sys.stdin)
    try:
        settings = load(asked["config"], None, os.environ, make_connector)
        done = asyncio.run(try_script(
            asked["source"], asked["cases"], settings.connectors, settings.policy, Path(asked["config"]).parent,
            script=asked["script"]))
        answer = done.to_json()
    except KeepError as error:
        answer = {"error": error.message}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
