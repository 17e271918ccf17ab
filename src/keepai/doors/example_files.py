"""Where the scripts of examples/ are: part of the package where it is installed, beside it in a clone."""

from __future__ import annotations

from pathlib import Path

from ..model.errors import NotFound


def example_file(name: str) -> Path:
    """A file or a folder of the examples."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / name).exists():
            return folder / name
    raise NotFound(f"The example {name} is missing. Install Keep again.")
