"""What a model is told: texts in files that a person can read and change, filled with what holds on this host.

The guide is the AGENTS.md that `keep init` makes, so that every model reads the same. Text that a stranger may have
written enters a prompt only through `quoted`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from ..model.codec import Json
from ..model.errors import ConfigError
from ..model.visible_text import visible
from ..script.findings import CODES

FOLDER = "prompts"  #: beside keep.toml: a file there counts instead of the one of the same name here
#: File → the places in it that are filled.
PLACES: Mapping[str, frozenset[str]] = {
    "system.txt": frozenset({"guide", "types", "findings", "example_script", "example_cases"}),
    "plan.txt": frozenset({"words", "before", "taken"}),
    "repair.txt": frozenset({"evidence", "script", "cases", "words"}),
    "again.txt": frozenset({"fault", "earlier"}),
}
QUOTED_MAX = 60_000  #: characters of one quoted text
BYTES_MAX = 1 << 20
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_TEMPLATE = files("keepai.doors.cli").joinpath("template")


def packaged(name: str) -> str:
    """A prompt as Keep brings it."""
    return files(__package__).joinpath(FOLDER, name).read_text("utf-8")


def prompt(name: str, folder: Path | None, **parts: str) -> str:
    """A prompt with its places filled: the owner's file, or else Keep's."""
    own = folder / FOLDER / name if folder else None
    text = _owned(own) if own is not None and own.is_file() else packaged(name)
    unknown = sorted({*_PLACE.findall(text)} - PLACES[name])
    if unknown:
        known = ", ".join(f"{{{{{each}}}}}" for each in sorted(PLACES[name]))
        raise ConfigError(f"{own}: there is no {{{{{unknown[0]}}}}} to fill in. There are: {known}.")
    return _PLACE.sub(lambda place: parts[place[1]], text).strip() + "\n"


def system_prompt(folder: Path | None, types: str) -> str:
    """What every conversation begins with; `types` is what `keep types` prints."""
    guide = _TEMPLATE.joinpath("AGENTS.md").read_text("utf-8")
    return prompt(
        "system.txt", folder, guide=guide[guide.index("## Phases"):].strip(), types=quoted(types),
        findings="\n".join(f"- `{code}`: {each.sentence}" for code, each in CODES.items()),
        example_script=_TEMPLATE.joinpath("invoices.js").read_text("utf-8").strip(),
        example_cases=_TEMPLATE.joinpath("invoices.test.toml").read_text("utf-8").strip(),
    )


def quoted(text: str) -> str:
    """Text that may come from outside: each line is marked, each character visible, and no line ends the quotation."""
    shown = visible(text.replace("\t", "    "))
    if len(shown) > QUOTED_MAX:
        shown = f"{shown[:QUOTED_MAX]}\n… {len(shown) - QUOTED_MAX:,} characters more"
    return "\n".join(f"| {line}" for line in shown.split("\n"))


def quoted_json(value: Json) -> str:
    """The same for a value."""
    return quoted(json.dumps(value, ensure_ascii=False, indent=1))


def _owned(file: Path) -> str:
    try:
        raw = file.read_bytes()
        if len(raw) > BYTES_MAX:
            raise ConfigError(f"{file} has {len(raw):,} bytes; a prompt has at most {BYTES_MAX:,}.")
        return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from None
