"""Installs a built wheel into an empty environment and works with it: `python requirements/try_wheel.py dist/X.whl`.

The environment gets the packages that the wheel asks for and no others, at the versions and hashes of dev.lock. So a
dependency that pyproject.toml does not name, or a file that the wheel lacks, fails here and not at a user's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

LOCK = Path(__file__).parent / "dev.lock"
#: What a new user types first, in an empty folder, and a word that must be in what it prints.
TRIED = (
    ("keep init .", "invoices.js"),
    ("keep check", "0 errors"),
    ("keep test", "0 failed"),
    ("keep deploy invoices.js --grant all", "deployed"),
    ("keep dev --once --no-ui", "committed"),
    ("keep outputs invoices", "applied"),
    ("keep db check", "ok"),
    ("keep init orders --template order-to-erp", "erp.db"),
    ("keepai version", "keep "),
    ("keep demo", ""),
)


def plain(name: str) -> str:
    """A package's name as every tool spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(package: str, found: set[str]) -> set[str]:
    """Everything that a package asks for here, itself left out."""
    for text in requires(package) or ():
        wanted = Requirement(text)
        extras = {"", *wanted.extras}
        applies = wanted.marker is None or any(wanted.marker.evaluate({"extra": each}) for each in extras)
        if applies and plain(wanted.name) not in found:
            found.add(plain(wanted.name))
            needed(wanted.name, found)
    return found


def pins(names: set[str]) -> str:
    """The entries of the lock for these packages."""
    entries = re.split(r"^(?=[A-Za-z0-9])", LOCK.read_text("utf-8"), flags=re.MULTILINE)
    return "".join(each for each in entries if plain(each.partition("==")[0]) in names)


def main() -> None:
    """Install it and try it."""
    [wheel] = (Path(each).resolve() for each in sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="keep-wheel-") as folder:
        place, work, lock = Path(folder) / "env", Path(folder) / "work", Path(folder) / "run.lock"
        work.mkdir()
        lock.write_text(pins(needed("keepai", set())), "utf-8")
        venv.create(place, with_pip=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        install = [*pip, "install", "-qq", "--only-binary", ":all:"]
        subprocess.run([*install, "--require-hashes", "-r", str(lock)], check=True)
        subprocess.run([*install, "--no-deps", str(wheel)], check=True)
        subprocess.run([*pip, "check"], check=True, stdout=subprocess.DEVNULL)
        for typed, word in TRIED:
            print(f"    {typed}", flush=True)
            name, *words = typed.split()
            command = [str(place / "bin" / name), *words]
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode or word not in done.stdout + done.stderr:
                raise SystemExit(f"{typed} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    print(f"    {wheel.name} works in an empty environment")


if __name__ == "__main__":
    main()
