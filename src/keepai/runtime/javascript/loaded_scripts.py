"""The scripts that a worker knows, each with the memory image of a VM in which its top level has run.

A step that starts from such an image must not be able to notice: it finds exactly what it would find after loading the
script again. So a script has an image only if its top level used nothing that may differ between two steps (time,
chance, its host) and needed little memory. Nothing of a workflow, an event or a run is in an image.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from ...model.errors import Location
from ...model.operations import Surface
from ..base import Limits
from .instance import Image, VmLimits
from .vm import SCRIPT_NAME, Vm

#: What all images of a worker may take beside the base; a small script's takes about 80 kB.
IMAGES_BYTES_MAX = 64 << 20
_NAME = re.compile(r"\b([A-Za-z_]\w{0,30})\s?:", re.ASCII)  # of a member in an object; that of a type does no harm
_NAMES_MAX = 200  # that an image holds ready for messages
_TRACED = re.compile(rf"\b{re.escape(SCRIPT_NAME)}:(\d{{1,7}}):(\d{{1,7}})\b")
_KNOWN_MAX = 200  # places of calls in one script that are remembered
_LINES_MAX = 4  # lines over which the chain `ctx.gmail.search(` may be spread


@dataclass(eq=False)
class LoadedScript:
    """One source with one surface and limits, and its image once it was loaded."""

    source: str
    surface: Surface
    limits: Limits
    image: Image | None = None
    places: SourcePlaces = field(init=False)

    def __post_init__(self) -> None:
        self.places = SourcePlaces(self.source)
        limits = self.limits
        self.vm_limits = VmLimits(limits.memory_bytes, limits.stack_bytes, limits.message_bytes_max)
        names = sorted(set(_NAME.findall(self.source)))[:_NAMES_MAX]
        self.setting = json.dumps(
            {"operations": self.surface.operations, "messageMax": limits.message_bytes_max, "names": names},
        )


class LoadedScripts:
    """The scripts that the host sent to this worker, by number; the host also says which to forget."""

    def __init__(self, base: Image) -> None:
        self.base = base
        self._known: dict[int, LoadedScript] = {}

    def learn(self, number: int, script: LoadedScript) -> None:
        """Add a script."""
        self._known[number] = script

    def forget(self, number: int) -> None:
        """Drop a script and its image."""
        self._known.pop(number, None)

    def use(self, number: int) -> LoadedScript:
        """The script of this number, which is now the last to be forgotten."""
        script = self._known[number] = self._known.pop(number)
        return script

    def keep_image(self, script: LoadedScript, vm: Vm) -> None:
        """Keep the memory of `vm`, right after it loaded the script, if a later step may start from it."""
        if vm.consulted or vm.guest.memory_size() != self.base.size:
            return
        script.image = self.base.after(vm.guest)
        self._make_room()

    @property
    def images_bytes(self) -> int:
        """What the images take."""
        return sum(script.image.changed_bytes for script in self._known.values() if script.image)

    def _make_room(self) -> None:
        surplus = self.images_bytes - IMAGES_BYTES_MAX
        for script in self._known.values():  # the longest unused first
            if surplus <= 0:
                return
            if script.image is not None:
                surplus -= script.image.changed_bytes
                script.image = None


class SourcePlaces:
    """Finds where in one script something happened, by QuickJS's stack traces.

    QuickJS locates a call at the last thing evaluated in its arguments, which may be lines away. So `bootstrap.js` also
    notes where the called member was read, and the call is looked up there in the source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._split: list[str] | None = None
        self._known: dict[str, Location | None] = {}

    def find(self, trace: str) -> Location | None:
        """The innermost place that the trace names."""
        match = _TRACED.search(trace)
        if match is None or int(match[1]) > len(self._lines):
            return None
        line, column = int(match[1]), int(match[2])
        before = self._lines[line - 1].encode("utf-8", "replace")[: column - 1]  # QuickJS counts bytes
        return Location(line, len(before.decode("utf-8", "replace")) + 1)

    def find_call(self, read: str) -> Location | None:
        """Where a member is called, given its name on the first line and then the trace of where it was read."""
        if read in self._known:
            return self._known[read]
        member, _, trace = read.partition("\n")
        place = self.find(trace)
        found = place and self._call_of(member, place)
        if len(self._known) < _KNOWN_MAX:
            self._known[read] = found
        return found

    def _call_of(self, member: str, read: Location) -> Location | None:
        """Where `member` is called, if a chain of names from the read leads straight to its call."""
        text = "\n".join(self._lines[read.line - 1 : read.line - 1 + _LINES_MAX])
        chain = re.compile(rf"(?:\.\s*)?(?:[\w$]+\s*(?:\?\.|\.)\s*)*?({re.escape(member)})\s*(?:\?\.\s*)?\(")
        match = chain.match(text, read.column - 1)
        if match is None:
            return None
        before = text[: match.start(1)].split("\n")
        return Location(read.line + len(before) - 1, len(before[-1]) + 1)

    @property
    def _lines(self) -> list[str]:
        if self._split is None:
            self._split = self._source.split("\n")
        return self._split
