"""What a workflow may do: one rule per capability, and the function that judges a call by it.

A rule judges the meaning of a param, not its spelling. The connector says which kind a param has, and the host has
already brought it into its one normal form. So what is judged is also what is shown and sent:

    addresses   each address on its own; the name beside it does not count
    url         scheme and host in lower case, no dot segments
    path        parts below a folder, no dot segments
    text        as it is; every param without another kind

Comparisons are case-sensitive, except for domains and for the scheme and host of a URL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from .codec import Json, canonical, encode, stored
from .errors import ConfigError, NotGranted
from .fast_record import fast_record


class Mode(StrEnum):
    ALLOW = "allow"  #: the call is made
    ASK = "ask"  #: a person sees the exact call first
    DENY = "deny"  #: the call is refused


class ParamKind(StrEnum):
    """The kind of a connector's param."""

    ADDRESSES = "addresses"  #: one or more e-mail addresses
    URL = "url"  #: an address of the web
    PATH = "path"  #: a file below a folder
    TEXT = "text"  #: everything else


#: Param → its kind. Params without an entry are text.
Kinds = Mapping[str, ParamKind]

#: In a rule it means every address of a call, in whichever param it is: to, cc, bcc, attendees.
RECIPIENTS = "recipients"


@dataclass(frozen=True)
class Condition:
    """A comparison of one param of a call: `values[2] > 1000`."""

    path: str
    operator: str
    value: Json

    def __str__(self) -> str:
        shown = ", ".join(map(_shown, self.value)) if isinstance(self.value, list) else _shown(self.value)
        return f"{self.path} {self.operator} {shown}"


@dataclass(frozen=True)
class Grant:
    """A rule: a mode, optionally only for certain params, optionally with a limit on the number of calls."""

    mode: Mode
    match: Mapping[str, str] = field(default_factory=dict)  # param path → pattern with * and ?
    ask_when: tuple[Condition, ...] = ()  # a person is asked if any of them is true
    deny_when: tuple[Condition, ...] = ()  # the call is refused if any of them is true
    per_run: int | None = None  # calls in one run
    per_day: int | None = None  # mutations in any 24 hours
    account: str = ""  # the connector's account when it was granted: the rule covers no other; empty if there is none
    configured: bool = False  # it comes from keep.toml, not from a person

    def to_json(self) -> dict[str, Json]:
        """The rule as a person would write it, without empty fields."""
        rule: dict[str, Json] = {
            "mode": self.mode.value, "match": dict(self.match), "ask_when": list(map(str, self.ask_when)),
            "deny_when": list(map(str, self.deny_when)), "per_run": self.per_run, "per_day": self.per_day,
        }
        return {name: value for name, value in rule.items() if value}

    def to_text(self) -> str:
        """The rule as canonical JSON."""
        return canonical(self.to_json())

    def on_record(self) -> str:
        """What is recorded of the act that granted it: the rule, and its account."""
        return canonical(self.to_json() | ({"account": self.account} if self.account else {}))

    @property
    def limits(self) -> tuple[str, ...]:
        """The limits of the rule, in words."""
        words = [f"only where {path} is like {pattern}" for path, pattern in self.match.items()]
        words += [f"a person is asked when {condition}" for condition in self.ask_when]
        words += [f"denied when {condition}" for condition in self.deny_when]
        words += [f"at most {self.per_run:,} per run"] if self.per_run is not None else []
        words += [f"at most {self.per_day:,} per day"] if self.per_day is not None else []
        return tuple(words)

    @property
    def in_words(self) -> str:
        """The mode and the limits, in words."""
        return ", ".join((self.mode.value, *self.limits))

    @property
    def paths(self) -> tuple[str, ...]:
        """The params that the rule compares."""
        return (*self.match, *(condition.path for condition in (*self.ask_when, *self.deny_when)))


_FIELDS = ("mode", "match", "ask_when", "deny_when", "per_run", "per_day")


def grant_of(given: object, capability: str) -> Grant:
    """A rule from a mode, or from an object {mode, match, ask_when, deny_when, per_run, per_day}."""
    entry = {"mode": given} if isinstance(given, str) else given
    if not isinstance(entry, Mapping):
        raise ConfigError(f"The grant of {capability} must be a mode or an object with a mode, not {given!r}.")
    unknown = sorted(set(map(str, entry)) - set(_FIELDS))
    if unknown:
        raise ConfigError(f"The grant of {capability} has no {unknown[0]!r}; it has {', '.join(_FIELDS)}.")
    mode = _mode(entry.get("mode"), capability)
    asks = _conditions(entry, "ask_when", capability)
    if asks and mode is not Mode.ALLOW:
        raise ConfigError(f"The grant of {capability}: ask_when goes with the mode allow, not with {mode.value}.")
    return Grant(mode, _match(entry.get("match"), capability), asks, _conditions(entry, "deny_when", capability),
                 _limit(entry, "per_run", capability), _limit(entry, "per_day", capability))


def matches_of(lines: Iterable[str]) -> dict[str, str]:
    """Param → pattern, from texts such as `to=*@example.com`."""
    patterns: dict[str, str] = {}
    for line in lines:
        param, equals, pattern = (part.strip() for part in line.partition("="))
        if not param or not equals or not pattern:
            raise ConfigError(f"{line[:80]!r} is not PARAM=PATTERN, such as recipients=*@example.com.")
        if param in patterns:
            raise ConfigError(f"{param} is given twice: a call must fit one pattern.")
        patterns[param] = pattern
    return patterns


@lru_cache(maxsize=1024)
def from_text(text: str, account: str, configured: int) -> Grant:
    """The rule that `to_text` wrote, with the account and origin that the ledger stores beside it."""
    return replace(grant_of(stored(text), "a stored capability"), account=account, configured=bool(configured))


@fast_record
@dataclass(frozen=True)
class Use:
    """How often a capability was used already."""

    in_run: int = 0
    in_day: int = 0


class Judged(NamedTuple):
    """What a rule says about a call."""

    mode: Mode
    because: str = ""  # why a person is asked


def judge(
    grant: Grant | None, capability: str, params: Json, use: Use, *, may_ask: bool, kinds: Kinds | None = None,
    account: str = "", workflow: str = "WORKFLOW",
) -> Judged:
    """Whether a call is allowed or needs approval; otherwise raises `NotGranted` with the reason and with what to type
    about `workflow`."""
    try:
        return _judge(grant, capability, params, use, may_ask=may_ask, kinds=kinds or {}, account=account)
    except _Unfit as unfit:
        raise _refused(unfit.why, capability, workflow) from None


class _Unfit(Exception):
    """A call that the rule does not allow."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _judge(
    grant: Grant | None, capability: str, params: Json, use: Use, *, may_ask: bool, kinds: Kinds, account: str,
) -> Judged:
    if grant is None:
        raise _Unfit(f"{capability} has not been granted to this workflow")
    if grant.mode is Mode.DENY:
        raise _Unfit(f"{capability} is denied to this workflow")
    if grant.account != account:
        raise _Unfit(
            f"{capability} was granted for the account {grant.account or '(none)'}, and its connector now has the "
            f"account {account or '(none)'}"
        )
    if grant.match or grant.ask_when or grant.deny_when:
        mode, because = _judge_params(grant, capability, params, kinds)
    else:
        mode, because = grant.mode, ""
    if mode is Mode.ASK and not may_ask:
        raise _Unfit(f"{capability} is a read, which cannot be approved call by call")
    if grant.per_run is not None and use.in_run >= grant.per_run:
        raise _Unfit(f"{capability} is granted {grant.per_run} times per run, and was used as often")
    if grant.per_day is not None and use.in_day >= grant.per_day:
        raise _Unfit(f"{capability} is granted {grant.per_day} times per day, and was used as often")
    return Judged(mode, because or f"{capability} is set to ask" if mode is Mode.ASK else "")


def _judge_params(grant: Grant, capability: str, params: Json, kinds: Kinds) -> Judged:
    for path, pattern in grant.match.items():
        for value in _values(params, path, kinds) or [None]:
            if not _fits(value, pattern, _kind(path, kinds)):
                why = f"{capability} is granted only for {path} like {pattern!r}, not {_shown(value)}"
                raise _Unfit(why)
    for name in _uncovered(grant, params, kinds):
        raise _Unfit(
            f"{capability} is granted only for certain addresses in {', '.join(grant.match)}, and this call also "
            f"has {name}. A rule on {RECIPIENTS} covers all of them"
        )
    for condition in grant.deny_when:
        if _holds(condition, params, kinds):
            raise _Unfit(f"{capability} is denied when {condition}{_untold(condition, params, kinds)}")
    asked = next((condition for condition in grant.ask_when if _holds(condition, params, kinds)), None)
    return Judged(Mode.ASK, f"{asked}{_untold(asked, params, kinds)}") if asked else Judged(grant.mode)


def _uncovered(grant: Grant, params: Json, kinds: Kinds) -> Iterator[str]:
    """Params with addresses that no pattern covers, although one covers others. Without this, a workflow that may write
    to Ann alone could send a copy to everybody."""
    looked_at = {_root(path) for path in grant.match}
    named = {name for name, kind in kinds.items() if kind is ParamKind.ADDRESSES}
    if RECIPIENTS in looked_at or not looked_at & named or not isinstance(params, dict):
        return
    yield from sorted(name for name in named - looked_at if params.get(name))


def check_params(grant: Grant, capability: str, known: frozenset[str] | None, kinds: Kinds) -> None:
    """Refuse a rule that would never or always hold: on a param that the operation does not have, or with a spelling
    that no address or URL has in its normal form."""
    for path, text in _compared(grant):
        if _kind(path, kinds) in (ParamKind.ADDRESSES, ParamKind.URL) and not text.isascii():
            raise ConfigError(
                f"The grant of {capability}: {text[:80]!r} has letters beyond ASCII. Addresses and URLs are judged as "
                "they go over the wire: write xn--… for such a domain, and %… in a path."
            )
    if known is None:
        return
    for path in grant.paths:
        root = _root(path)
        if root not in known and not (path == RECIPIENTS and ParamKind.ADDRESSES in kinds.values()):
            raise ConfigError(
                f"The grant of {capability} has a rule on {path!r}, and {capability} has no such param. "
                f"It has {', '.join(sorted(known)) or 'none'}."
            )


def _compared(grant: Grant) -> Iterator[tuple[str, str]]:
    """Every text that a rule compares with a param."""
    yield from grant.match.items()
    for condition in (*grant.ask_when, *grant.deny_when):
        values = condition.value if isinstance(condition.value, list) else [condition.value]
        yield from ((condition.path, text) for text in values if isinstance(text, str))


#: Used instead of a connector in the capability to register inputs of a source: `inputs.gmail`.
INPUTS = "inputs"


def judge_inputs(grant: Grant | None, source: str, workflow: str) -> None:
    """Whether inputs of a source may be registered: yes, unless that is denied. Raises `NotGranted` if it is."""
    if grant is not None and grant.mode is Mode.DENY:
        raise _refused(f"inputs of the source {source!r} are denied to this workflow", f"{INPUTS}.{source}", workflow)


def check_for_inputs(grant: Grant, capability: str) -> None:
    """Refuse a rule that makes no sense for inputs: nobody approves them one by one, and they have no params."""
    if grant.mode is Mode.ASK or set(grant.to_json()) > {"mode"}:
        raise ConfigError(f"The grant of {capability} must be allow or deny, without limits: no call is to be judged.")


def _refused(why: str, capability: str, workflow: str) -> NotGranted:
    return NotGranted(f"{why}. Change it with `keep grant {workflow} {capability}`, then the run goes on.", capability)


# -- params ------------------------------------------------------------------------------------------

_STEP = re.compile(r"([A-Za-z_$][\w$]*)|\[([0-9]{1,6})\]")
_PATH = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*|\[[0-9]{1,6}\])*")


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _kind(path: str, kinds: Kinds) -> ParamKind:
    if path == RECIPIENTS and RECIPIENTS not in kinds:
        return ParamKind.ADDRESSES
    return kinds.get(_root(path), ParamKind.TEXT)  # an entry of addresses is an address


def _values(params: Json, path: str, kinds: Kinds) -> list[Json]:
    """The values at a path, one by one; empty if it is missing."""
    if path == RECIPIENTS and RECIPIENTS not in kinds:
        named = [name for name, kind in kinds.items() if kind is ParamKind.ADDRESSES]
        return [value for name in named for value in _values(params, name, kinds)]
    value = params
    for step in _STEP.finditer(path):
        if step[1] is not None:
            value = value.get(step[1]) if isinstance(value, dict) else None
        else:
            value = value[int(step[2])] if isinstance(value, list) and int(step[2]) < len(value) else None
    entries = value if isinstance(value, list) else [value]
    if _kind(path, kinds) is ParamKind.ADDRESSES:
        return [_mailbox(entry) for entry in entries if entry is not None]
    return [entry for entry in entries if entry is not None]


def _mailbox(value: Json) -> Json:
    """The address itself. In the normal form, a name is before `<`, and nothing is after `>`."""
    if not isinstance(value, str):
        return value
    return value[value.rindex("<") + 1 : -1] if value.endswith(">") and "<" in value else value


def _fits(value: Json, pattern: str, kind: ParamKind) -> bool:
    """Whether one value matches a pattern. A missing value, or one that is neither text nor number, never does."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return like(value if isinstance(value, str) else canonical(value), _normal(pattern, kind))


def _normal(text: str, kind: ParamKind) -> str:
    """A pattern or a value of a rule, in lower case where case does not count."""
    if kind is ParamKind.ADDRESSES:
        local, at, domain = text.rpartition("@")
        return f"{local}{at}{domain.lower()}"
    if kind is ParamKind.URL:
        scheme, mark, rest = text.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme.lower()}{mark}{host.lower()}{slash}{path}" if mark else text
    return text


def like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern: `*` matches any text, `?` one character, everything else itself."""
    at = place = 0
    star, resumed = -1, 0
    while at < len(text):
        if place < len(pattern) and pattern[place] == "*":
            star, resumed = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", text[at]):
            at, place = at + 1, place + 1
        elif star >= 0:
            resumed += 1
            at, place = resumed, star + 1
        else:
            return False
    return not pattern[place:].strip("*")


# -- conditions --------------------------------------------------------------------------------------

_CONDITION = re.compile(rf"\s*({_PATH.pattern})\s*(!=|<=|>=|=|<|>|\bin\b)\s*(\S.*?)\s*", re.DOTALL)


def condition_of(text: str, capability: str = "a capability") -> Condition:
    """A condition as a person writes it: `values[2] > 1000`, `channel != "C01"`, `to in ann@example.com, bob@b.com`."""
    match = _CONDITION.fullmatch(text) if len(text) <= 1_000 else None
    if match is None:
        raise ConfigError(
            f"The grant of {capability}: {text[:80]!r} is no condition. Write a param, one of = != < <= > >= in, and a "
            "value, such as values[2] > 1000."
        )
    path, operator, operand = match.groups()
    if operator == "in":
        entries = (
            _literal(operand) if operand.startswith("[") else [_literal(entry.strip()) for entry in operand.split(",")]
        )
        if not isinstance(entries, list) or not entries:
            raise ConfigError(f"The grant of {capability}: {text[:80]!r} needs values after in, with commas between.")
        return Condition(path, operator, entries)
    value = _literal(operand)
    if operator not in ("=", "!=") and not _is_number(value):
        raise ConfigError(f"The grant of {capability}: {text[:80]!r} compares with what is no number.")
    return Condition(path, operator, value)


def _literal(text: str) -> Json:
    """A number, true, false, null or quoted text as JSON has it; anything else is the text itself."""
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return value


def _holds(condition: Condition, params: Json, kinds: Kinds) -> bool:
    """Whether a condition is true of a call. Where it cannot be told, it is: the call is asked about, or refused."""
    kind = _kind(condition.path, kinds)
    return any(_compares(value, condition, kind) for value in _values(params, condition.path, kinds) or [None])


def _untold(condition: Condition, params: Json, kinds: Kinds) -> str:
    """Why it cannot be told whether a condition is true, if so."""
    if condition.operator in ("=", "!=", "in"):
        return ""
    values = _values(params, condition.path, kinds) or [None]
    odd = next((each for each in values if not _is_number(each)), 0)
    if odd is None:
        return f", and {condition.path} is missing"
    return "" if _is_number(odd) else f", and {_shown(odd)[:80]} is no number"


def surely(condition: Condition, params: Json) -> bool:
    """Whether a condition is certainly true of a call: of every value at its path, of which there is at least one."""
    values, kind = _values(params, condition.path, {}), _kind(condition.path, {})
    comparable = condition.operator in ("=", "!=", "in") or all(map(_is_number, values))
    return bool(values) and comparable and all(_compares(value, condition, kind) for value in values)


def _compares(value: Json, condition: Condition, kind: ParamKind) -> bool:
    if condition.operator == "in":
        assert isinstance(condition.value, list)
        return any(_same(value, entry, kind) for entry in condition.value)
    if condition.operator in ("=", "!="):
        return _same(value, condition.value, kind) == (condition.operator == "=")
    limit = condition.value
    if not _is_number(value) or not _is_number(limit):
        return True
    assert isinstance(value, int | float)
    assert isinstance(limit, int | float)
    match condition.operator:
        case "<":
            return value < limit
        case "<=":
            return value <= limit
        case ">":
            return value > limit
    return value >= limit


def _same(value: Json, other: Json, kind: ParamKind) -> bool:
    if isinstance(other, str) and isinstance(value, str):
        return value == _normal(other, kind)
    return canonical(value) == canonical(other) or (_is_number(value) and _is_number(other) and value == other)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Json) -> str:
    """A value as a condition has it: text that could be read as something else is quoted."""
    return value if isinstance(value, str) and _literal(value) == value and "," not in value else encode(value)


# -- reading a rule ----------------------------------------------------------------------------------


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
    for path in value:
        if not _PATH.fullmatch(path):
            raise ConfigError(f"The grant of {capability}: {path[:80]!r} is no param. Write to, row.name or values[2].")
    return dict(value)


def _conditions(entry: Mapping[str, object], name: str, capability: str) -> tuple[Condition, ...]:
    given = entry.get(name)
    texts = [given] if isinstance(given, str) else given or []
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"The grant of {capability}: {name} must be a condition or a list of them, not {given!r}.")
    return tuple(condition_of(text, capability) for text in texts)


def _limit(entry: Mapping[str, object], name: str, capability: str) -> int | None:
    value = entry.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"The grant of {capability}: {name} must be a whole number above zero, not {value!r}.")
    return value
