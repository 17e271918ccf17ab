"""Certificates: that Keep itself ran a script's cases with everything that can go wrong, and found no fault.

A certificate names what it was made with: the script, its cases, the connectors, Keep's version. It is void when one of
these is another. Only a process of Keep that has run the trials keeps one; no door takes a certificate from outside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeAlias

from ..connectors.base import Connector
from ..ledger.base import Reader
from ..ledger.transitions import workflows
from ..model.codec import digest, encode, stored
from ..model.errors import Refused
from ..model.records import Record
from .host_parts import Parts

BUILT_IN, PASSED, NOT_TESTED = "built in", "passed", "not tested"  # what is known of a connector's contract


@dataclass(frozen=True)
class BrokenTrial(Record):
    """A trial that broke a rule."""

    trial: str  # what `--only` takes
    case: str
    when: str
    what: str
    cause: str  # with its place in the script
    line: int | None
    instead: str  # what to write


@dataclass(frozen=True)
class Certification(Record):
    """What came of the trials of one script."""

    trials: int
    broken: tuple[BrokenTrial, ...]
    asks: tuple[str, ...]  # calls that nobody can look up: a person is asked what became of them
    unreached: tuple[str, ...]  # mutations that the script may make and no case does
    untried: tuple[str, ...]  # what could not be tried, in sentences
    connectors: Mapping[str, str]  # those that the script uses, and the digest of what they declare
    contracts: Mapping[str, str]  # of each: one of the three above, or the rule that it breaks
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the script may have a certificate."""
        return not self.broken and not self.broken_contracts and self.trials > 0

    @property
    def broken_contracts(self) -> dict[str, str]:
        """The connectors that break a rule, each with the rule."""
        return {name: state for name, state in self.contracts.items() if state not in (BUILT_IN, PASSED, NOT_TESTED)}

    @classmethod
    def shown_too(cls) -> tuple[str, ...]:
        return ("passed",)


#: Tries a script (its text, the text of its cases, its name) in a process of its own.
Certifier: TypeAlias = Callable[[str, str | None, str], Awaitable[Certification]]


@dataclass(frozen=True)
class CertificateStanding(Record):
    """Whether a script has a certificate that holds now, and the sentence that says so."""

    valid: bool
    words: str
    made_at: int | None = None
    by: str | None = None


async def keep(parts: Parts, source: str, cases: str | None, tried: Certification, actor: str) -> bool:
    """Keep a certificate of what passed; False if it did not."""
    if not tried.passed:
        return False
    facts = {
        "cases": _cases(cases), "keep": version("keepai"), "connectors": dict(tried.connectors),
        "contracts": dict(tried.contracts), "trials": tried.trials, "asks": list(tried.asks),
        "unreached": list(tried.unreached),
    }
    await parts.ledger.write(workflows.certify, digest(source), encode(facts), actor, barrier=True)
    return True


def standing(
    read: Reader, source_hash: str, connectors: Mapping[str, Connector] | None, cases: str | None = None,
) -> CertificateStanding:
    """How a script stands. What is not given, the connectors or the cases, is not compared."""
    row = read.one("certificate_get", script_hash=source_hash)
    if row is None:
        return CertificateStanding(
            False, "not certified: nobody has tried what happens to it when something goes wrong")
    facts = stored(row["facts"])
    assert isinstance(facts, dict)
    changed = list(_changed(facts, connectors, cases))
    words = (f"not certified any more: {' and '.join(changed)} changed since" if changed
             else f"certified: {facts['trials']} trials{_reserve(facts)}")
    return CertificateStanding(not changed, words, int(row["made_at"]), str(row["made_by"]))


def required(read: Reader, parts: Parts, source_hash: str, cases: str | None) -> CertificateStanding | None:
    """How the script of a deploy stands; refused if policy requires a certificate and it has none."""
    if parts.policy.certified == "off":
        return None
    found = standing(read, source_hash, parts.connectors, cases)
    if not found.valid and parts.policy.certified == "require":
        raise Refused(f"The script is {found.words}. Policy requires a certificate: run `keep certify FILE` first.")
    return found


def _changed(
    facts: Mapping[str, object], connectors: Mapping[str, Connector] | None, cases: str | None,
) -> list[str]:
    told = [] if facts["keep"] == version("keepai") else ["Keep"]
    if cases is not None and facts["cases"] != _cases(cases):
        told.append("its cases")
    marks = facts["connectors"]
    assert isinstance(marks, dict)
    if connectors is not None:
        told += [f"the connector {name}" for name, mark in marks.items()
                 if name not in connectors or connectors[name].fingerprint() != mark]
    return told


def _cases(text: str | None) -> str:
    """The hash of the cases; of none, empty: then one was made from the types."""
    return digest(text) if text is not None else ""


def _reserve(facts: Mapping[str, object]) -> str:
    """What the certificate does not say."""
    asks, unreached, contracts = facts["asks"], facts["unreached"], facts["contracts"]
    assert isinstance(asks, list)
    assert isinstance(unreached, list)
    assert isinstance(contracts, dict)
    untested = sorted(name for name, state in contracts.items() if state == NOT_TESTED)
    told = [] if facts["cases"] else ["with made-up data only"]
    told += [f"a person is asked about {', '.join(map(str, asks))} if an answer is lost"] if asks else []
    told += [f"no case reaches {', '.join(map(str, unreached))}"] if unreached else []
    told += [f"nobody has tested the connector {', '.join(untested)}"] if untested else []
    return f"; {'; '.join(told)}" if told else ""
