"""What a workflow may do: one rule per capability, and the one function that judges a call by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from .codec import Json, encode, stored
from .errors import ConfigError, NotGranted
from .light import light


class Mode(StrEnum):
    ALLOW = "allow"  #: the call is made
    ASK = "ask"  #: a person sees the exact call first
    DENY = "deny"  #: the call is refused


@dataclass(frozen=True)
class Grant:
    """A rule: a mode, optionally only for certain params, optionally only so often."""

    mode: Mode
    match: Mapping[str, str] = field(default_factory=dict)  # param path → pattern with * and ?
    per_run: int | None = None  # calls of one run
    per_day: int | None = None  # mutations of any 24 hours

    def to_text(self) -> str:
        """The rule as canonical JSON."""
        return encode({
            "mode": self.mode, "match": dict(self.match), "per_run": self.per_run, "per_day": self.per_day,
        })


def grant_of(given: object, capability: str) -> Grant:
    """A rule from a mode or from an object {mode, match, per_run, per_day}."""
    entry = {"mode": given} if isinstance(given, str) else given
    if not isinstance(entry, Mapping):
        raise ConfigError(f"The grant of {capability} must be a mode or an object with a mode, not {given!r}.")
    unknown = sorted(set(map(str, entry)) - {"mode", "match", "per_run", "per_day"})
    if unknown:
        raise ConfigError(f"The grant of {capability} has no {unknown[0]!r}; it has mode, match, per_run and per_day.")
    return Grant(_mode(entry.get("mode"), capability), _match(entry.get("match"), capability),
                 _limit(entry, "per_run", capability), _limit(entry, "per_day", capability))


@lru_cache(maxsize=1024)
def from_text(text: str) -> Grant:
    """The rule that `to_text` wrote."""
    return grant_of(stored(text), "a stored capability")


@light
@dataclass(frozen=True)
class Use:
    """How often a capability was used already."""

    in_run: int = 0
    in_day: int = 0


def judge(grant: Grant | None, capability: str, params: Json, use: Use, *, may_ask: bool) -> Mode:
    """Whether a call is allowed or must be asked for; raises `NotGranted` with the reason otherwise."""
    if grant is None:
        raise _refused(f"{capability} has not been granted to this workflow", capability)
    if grant.mode is Mode.DENY:
        raise _refused(f"{capability} is denied to this workflow", capability)
    if grant.mode is Mode.ASK and not may_ask:
        raise _refused(f"{capability} is a read, which cannot be approved call by call", capability)
    for path, pattern in grant.match.items():
        value = _at(params, path)
        if not _matches(value, pattern):
            raise _refused(f"{capability} is granted only for {path} like {pattern!r}, not {value!r}", capability)
    if grant.per_run is not None and use.in_run >= grant.per_run:
        raise _refused(f"{capability} is granted {grant.per_run} times per run, and was used as often", capability)
    if grant.per_day is not None and use.in_day >= grant.per_day:
        raise _refused(f"{capability} is granted {grant.per_day} times per day, and was used as often", capability)
    return grant.mode


#: What stands for a connector in the capability of bringing in inputs of a source: `inputs.gmail`.
INPUTS = "inputs"


def judge_inputs(grant: Grant | None, source: str) -> None:
    """Whether inputs of a source may come in: they may, unless that is denied. Raises `NotGranted` if it is."""
    if grant is not None and grant.mode is Mode.DENY:
        raise _refused(f"inputs of the source {source!r} are denied to this workflow", f"{INPUTS}.{source}")


def check_for_inputs(grant: Grant, capability: str) -> None:
    """Refuse a rule that makes no sense for inputs: nobody sees them one by one, and they have no params."""
    if grant.mode is Mode.ASK or grant.match or grant.per_run is not None or grant.per_day is not None:
        raise ConfigError(f"The grant of {capability} must be allow or deny, without limits: no call is to be judged.")


def _refused(why: str, capability: str) -> NotGranted:
    return NotGranted(f"{why}. Change it with `keep grant WORKFLOW {capability}`, then the run goes on.", capability)


def _at(params: Json, path: str) -> Json:
    value = params
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _matches(value: Json, pattern: str) -> bool:
    """Every text must match; what is missing or no text matches nothing."""
    if isinstance(value, list):
        return bool(value) and all(_matches(v, pattern) for v in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return fnmatchcase(str(value).casefold(), pattern.casefold())


def _mode(value: object, capability: str) -> Mode:
    try:
        return Mode(str(value))
    except ValueError:
        modes = ", ".join(Mode)
        raise ConfigError(f"The grant of {capability} must be one of {modes}, not {value!r}.") from None


def _match(value: object, capability: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise ConfigError(f"The grant of {capability}: match must be an object of param → pattern, not {value!r}.")
    return dict(value)


def _limit(entry: Mapping[str, object], name: str, capability: str) -> int | None:
    value = entry.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"The grant of {capability}: {name} must be a whole number above zero, not {value!r}.")
    return value
