"""The scripts that a worker knows, each with the memory image of a VM in which its top level has run.

A step that starts from such an image must not be able to tell: it finds exactly what loading the script anew would
give. So there is an image only of a script whose top level met nothing that may differ between two steps (time,
chance, its host) and that needed little memory. Nothing of a workflow, an event or a run is in an image.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from ...model.operations import Surface
from ..base import Limits
from .cell import Image, Size
from .places import Places
from .vm import Vm

#: What all images of a worker may take beside the base; a small script's takes about 80 kB.
IMAGES_BYTES_MAX = 64 << 20
_NAME = re.compile(r"\b([A-Za-z_]\w{0,30})\s?:", re.ASCII)  # of a member in an object; that of a type does no harm
_NAMES_MAX = 200  # that an image holds ready for messages


@dataclass(eq=False)
class Script:
    """One text with one surface and limits."""

    source: str
    surface: Surface
    limits: Limits
    image: Image | None = None
    places: Places = field(init=False)

    def __post_init__(self) -> None:
        self.places = Places(self.source)
        limits = self.limits
        self.size = Size(limits.memory_bytes, limits.stack_bytes, limits.message_bytes_max)
        names = sorted(set(_NAME.findall(self.source)))[:_NAMES_MAX]
        self.setting = json.dumps(
            {"operations": self.surface.operations, "messageMax": limits.message_bytes_max, "names": names},
        )


class Scripts:
    """What a worker was told about; its host says what to forget."""

    def __init__(self, base: Image) -> None:
        self.base = base
        self._known: dict[int, Script] = {}

    def learn(self, number: int, script: Script) -> None:
        """Know a script by its number."""
        self._known[number] = script

    def forget(self, number: int) -> None:
        """Know it no longer."""
        self._known.pop(number, None)

    def use(self, number: int) -> Script:
        """The script of this number, which is now the last to be forgotten."""
        script = self._known[number] = self._known.pop(number)
        return script

    def keep_image(self, script: Script, vm: Vm) -> None:
        """Keep what `vm` is now, right after loading, if a later step may start from it."""
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
