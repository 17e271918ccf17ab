"""A script's text as commands read it, and what is wrong with it as they show it."""

from __future__ import annotations

import sys
from pathlib import Path

from ...model.errors import ConfigError, Finding, ScriptInvalid
from ...reading.wording import count
from .text import echo_json, paint, plain, say

CASES = ".test.toml"


def read_script(file: str) -> str:
    """The text of a script; `-` is standard input."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}:{line}: this is not UTF-8. Save the script as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None


def cases_beside(script: Path) -> Path | None:
    """The file of cases of a script, if there is one with its name."""
    beside = script.with_name(script.name.removesuffix(".js") + CASES)
    return beside if beside.is_file() else None


def cases_of(script: str) -> str | None:
    """The text of that file."""
    beside = cases_beside(Path(script))
    return read_script(str(beside)) if beside is not None else None


def finding_line(file: str, finding: Finding) -> str:
    """A finding on one line: its place, what it is, what to do."""
    place = f"{file}:{finding.line}:{finding.column}"
    told = plain(f"{finding.message} {finding.fix}".rstrip())
    return f"{place} {paint(finding.severity)} {finding.code}: {told}"


def say_refused(file: str, error: ScriptInvalid, as_json: bool) -> None:
    """Say why a script was not deployed."""
    if as_json:
        echo_json({"findings": [{"file": file, **vars(finding)} for finding in error.findings]})
        return
    for finding in error.findings:
        say(finding_line(file, finding))
    errors = sum(1 for finding in error.findings if finding.severity == "error")
    say(f"Nothing was deployed: the script has {count(errors, 'error')}.")
