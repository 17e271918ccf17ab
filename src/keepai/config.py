"""Settings of a host, from `keep.toml`, the environment and flags; a mistake is told with its place and its fix.

Flags win over `KEEP_*` variables, those over `keep.toml`, and that over the defaults. Everything that is
wrong is told at once. This module knows no connector: whoever wants them made passes `make`.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .model.errors import ConfigError
from .model.flow_limits import CONNECTOR_KEYS, WORKFLOW_KEYS, FlowLimit, limit_of
from .model.ledger_address import EXAMPLE, has_password, is_address, mistake
from .model.permissions import grant_of
from .model.policy import Policy
from .model.policy import settings as policy_settings
from .model.states import Waiting

FILE = "keep.toml"
LEDGER = "keep.db"
HOOKS = "127.0.0.1:7788"
PROBES = "127.0.0.1:7790"
ENV_CONFIG, ENV_FILE, ENV_ADDRESS = "KEEP_CONFIG", "KEEP_DB", "KEEP_LEDGER"
ENV_POLICY, ENV_PASSWORD = "KEEP_POLICY_", "KEEP_PASSWORD"
ENV_KEY_FILE, ENV_PASSPHRASE, ENV_NEW_PASSPHRASE = "KEEP_KEY_FILE", "KEEP_PASSPHRASE", "KEEP_NEW_PASSPHRASE"
BYTES_MAX = 1 << 20

#: Makes the connector of a table: its type, its name, its other settings, and the folder of keep.toml.
Make = Callable[[str, str, Mapping[str, Any], Path], Any]


#: Makes the channel of a table [notify.NAME]: its type, its name, its settings, the folder, when it wants digests.
MakeChannel = Callable[[str, str, Mapping[str, Any], Path, str | None], Any]

KEEP_KEYS = ("path", "ledger", "repair", "hooks", "probes", "api", "mcp", "key_file")

#: Wire of a model → where its service is, if keep.toml does not say.
WIRES: Mapping[str, str | None] = {
    "anthropic": "https://api.anthropic.com/v1", "responses": "https://api.openai.com/v1", "chat": None,
}
MODEL = "model"  #: the table, the name under which its key is kept, and the value of [keep] repair that means it


@dataclass(frozen=True)
class Setting:
    """One line of the table of settings."""

    name: str  # as in keep.toml: `policy.settle_s`
    default: object
    meaning: str
    variable: str | None = None
    flag: str | None = None


@dataclass(frozen=True)
class ModelSettings:
    """The table [model]: which model `keep plan` and `keep repair` ask, and how much it may cost."""

    wire: str
    name: str
    url: str
    key: str | None = None  # the name of its secret
    networks: tuple[str, ...] = ()
    certificates: str | None = None
    attempts_max: int = 5
    tokens_max: int = 300_000
    reply_tokens_max: int = 16_000
    minutes_max: float = 20
    money_max: float | None = None
    price_in: float = 0  # for a million tokens, in the owner's currency
    price_out: float = 0

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secret that it needs, as a connector says it."""
        return {self.key: "the key of the model's service"} if self.key else {}


@dataclass(frozen=True)
class Settings:
    """What a host runs with."""

    file: Path | None = None
    ledger: Path | str = field(default=Path(LEDGER), repr=False)  # a file, or an address, maybe with a password
    policy: Policy = field(default_factory=Policy)
    connectors: tuple[Any, ...] = ()
    repair: tuple[str, ...] | str = ()  # the program that mends scripts, with its arguments; or "model"
    model: ModelSettings | None = None
    password: str | None = field(default=None, repr=False)  # for the page; only ever from the environment
    key_file: Path | None = None  # holds the key of the secrets
    passphrase: str | None = field(default=None, repr=False)  # stands for that key; only ever from the environment
    vault: Any = None  # the secrets that the connectors were given, if one of them needs any
    hooks: tuple[str, int] = ("127.0.0.1", 7788)  # where webhooks come in, if a connector takes them
    probes: tuple[str, int] | None = None  # where what watches a host asks
    api: tuple[str, int] | None = None  # where programs with a token ask
    mcp: tuple[str, int] | None = None  # where agents are served over HTTP
    channels: tuple[Any, ...] = ()  # by which people are told
    #: Workflow → capability → its rule, and `waiting`.
    grants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


#: The numbers in [model].
MODEL_NUMBERS: Mapping[str, str] = {
    "attempts_max": "How many drafts a model may write for one plan or repair.",
    "tokens_max": "How many tokens one plan or repair may use, read and written together.",
    "reply_tokens_max": "How many tokens one reply may have.",
    "minutes_max": "How long one plan or repair may take.",
    "money_max": "How much one plan or repair may cost, by the two prices; without it, cost is only counted.",
    "price_in": "What a million tokens cost that the model reads, in any currency.",
    "price_out": "What a million tokens cost that the model writes.",
}


def table() -> list[Setting]:
    """Every setting: its name, its default, one sentence."""
    first = [
        Setting("keep.path", LEDGER, "The file that holds the ledger, relative to keep.toml.", ENV_FILE, "--db"),
        Setting("keep.ledger", None, "The address of the PostgreSQL database that holds the ledger instead of a file, "
                f"such as {EXAMPLE}. In keep.toml and on the command line it has no password: PostgreSQL finds that in "
                "PGPASSWORD or in ~/.pgpass.", ENV_ADDRESS, "--db"),
        Setting("keep.repair", None, "The program that is given the evidence of a failed run as JSON and may print a "
                'repaired script, as a list of words; or "model": the model of [model] is asked.'),
        Setting(ENV_PASSWORD, None, "The password of the page; without it the page is reached by a one-time address, "
                "from this machine only. Only in the environment, never in keep.toml.", ENV_PASSWORD),
        Setting("connectors.NAME.type", None, "What stands behind ctx.NAME, such as local.mail; "
                "the table's other settings belong to that type."),
        Setting("connectors.NAME.rate", None, "How many mutations are sent through ctx.NAME in how long, over all "
                'workflows, such as "10/s", "100/m" or "1/30s". What is beyond that waits its turn.'),
        Setting("connectors.NAME.burst", None, "How many of them may go out at once; without it, as many as the rate "
                "says."),
        Setting("connectors.NAME.concurrency", None, "How many calls that change something are under way through "
                "ctx.NAME at once, over all workflows."),
        Setting("connectors.NAME.hours", None, "When mutations may be sent through ctx.NAME, such as "
                '"Mon-Fri 08:00-18:00 Europe/Berlin", or a list of these.'),
        Setting("workflows.NAME.rate", None, "How many mutations the workflow NAME sends in how long."),
        Setting("workflows.NAME.burst", None, "How many of them may go out at once."),
        Setting("workflows.NAME.hours", None, "When the workflow NAME may send mutations."),
        Setting("keep.hooks", HOOKS, "Address and port on which webhooks come in; used only if a connector of the type "
                "webhook.inbox is there."),
        Setting("keep.probes", None, "Address and port on which `keep serve` answers what watches it, such as "
                "127.0.0.1:7790: /healthz, /readyz and /metrics. Nobody signs in there.", None, "--probes"),
        Setting("keep.api", None, "Address and port of the API that `keep serve` opens, such as 127.0.0.1:7792. Each "
                "request needs a token.", None, "--api"),
        Setting("keep.mcp", None, "Address and port on which `keep serve` serves agents over the Model Context "
                "Protocol, such as 127.0.0.1:7791. It needs the extra keepai[mcp].", None, "--mcp"),
        Setting("keep.key_file", None, "The file that holds the key of the secrets, relative to keep.toml; without it "
                "the key is in the system's keyring, or made from a passphrase.", ENV_KEY_FILE),
        Setting(ENV_PASSPHRASE, None, "The passphrase of the secrets, where no key file is named. Only in the "
                "environment, never in keep.toml.", ENV_PASSPHRASE),
        Setting(ENV_NEW_PASSPHRASE, None, "The passphrase that `keep secrets rotate` locks them with from then on. "
                "Only in the environment, never in keep.toml.", ENV_NEW_PASSPHRASE),
        Setting("workflows.NAME.grants", None, "What a deploy grants to the workflow NAME: capability → a mode, or a "
                "table with mode, match, ask_when, deny_when, per_run, per_day. What a person granted by hand stays."),
        Setting("workflows.NAME.waiting", None, "What else of the workflow NAME goes on while a run of it waits for a "
                "person: stop (nothing), intake (its producers) or others (whatever does not depend on that run). "
                "A deploy sets it; what a person set by hand stays."),
        Setting("notify.NAME.type", None, "How people are told what waits for them: command, email, slack, ntfy, "
                "desktop or apprise; the table's other settings belong to that type."),
        Setting("notify.NAME.digest", None, 'When that channel gets a digest, such as "daily 08:00 Europe/Berlin".'),
        Setting("model.wire", None, "How the model for `keep plan` and `keep repair` is spoken with: anthropic "
                "(Anthropic Messages), responses (OpenAI Responses) or chat (Chat Completions: Ollama, vLLM, others)."),
        Setting("model.name", None, "The model's name, as its service calls it."),
        Setting("model.url", None, "Where its service is, without the last part of the path, such as "
                "http://127.0.0.1:11434/v1; anthropic and responses have their makers' address if it is missing."),
        Setting("model.key", None, "The name of the secret that is its key: `keep secrets set model NAME` stores it. "
                "Without it no key is sent."),
        Setting("model.networks", None, 'Private networks in which the service may be, such as ["127.0.0.0/8"] for '
                "this machine."),
        Setting("model.certificates", None, "A file of authorities to trust besides those of the system."),
        *(Setting(f"model.{name}", getattr(ModelSettings, name), meaning) for name, meaning in MODEL_NUMBERS.items()),
    ]
    return first + [
        Setting(f"policy.{name}", default, meaning, ENV_POLICY + name.upper())
        for name, default, meaning in policy_settings()
    ]


def load(
    config: str | Path | None = None, db: str | Path | None = None, env: Mapping[str, str] | None = None,
    make: Make | None = None, make_channel: MakeChannel | None = None,
) -> Settings:
    """The settings that hold here; `ConfigError` lists everything that is wrong. Without `make`, no connectors."""
    env = env or {}
    file = _file(config or env.get(ENV_CONFIG) or None)
    source = _Source.read(file)
    source.check_tables()
    ledger = typed_place(db) if db else _ledger_of(env) or _ledger(source)
    policy = _policy(source, env)
    connectors, channels = tuple(_connectors(source, make)), tuple(_channels(source, make_channel))
    repair, hooks, probes = _repair(source), _hooks(source), _optional_place(source, "probes")
    api, mcp = _optional_place(source, "api"), _optional_place(source, "mcp")
    key_file = _key_file(source, env.get(ENV_KEY_FILE) or None)
    grants = {name: _grants(source, name) for name in source.section("workflows")}
    model = _model(source)
    if repair == MODEL and model is None and not source.section("model"):
        source.wrong('[keep] repair = "model" needs a table [model] that says which.', "keep", "repair")
    if source.problems:
        raise ConfigError("\n".join(source.problems))
    return Settings(
        file, ledger, policy, connectors, repair, model, password=env.get(ENV_PASSWORD) or None, key_file=key_file,
        passphrase=env.get(ENV_PASSPHRASE) or None, hooks=hooks, probes=probes, api=api, mcp=mcp, channels=channels,
        grants=grants,
    )


# -- the file --------------------------------------------------------------------------------------


def _file(asked: str | Path | None) -> Path | None:
    path = Path(FILE if asked is None else asked)
    try:
        found = path.is_file()
    except OSError as error:  # a folder that this user may not look into
        raise ConfigError(f"{path} cannot be looked for: {error.strerror}. Use a folder that you may read.") from None
    if found or asked is None:
        return path if found else None
    raise ConfigError(f"{asked}: there is no such file. Name the keep.toml with --config or {ENV_CONFIG}.")


@dataclass
class _Source:
    """A keep.toml that was read, and what is wrong with it."""

    file: Path | None
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path | None) -> _Source:
        if file is None:
            return cls(None)
        try:
            raw = file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}. Change its permissions.") from None
        if len(raw) > BYTES_MAX:
            raise ConfigError(f"{file} has {len(raw):,} bytes; a keep.toml has at most {BYTES_MAX:,}.")
        try:
            text = raw.decode("utf-8")
            return cls(file, text, tomllib.loads(text))
        except UnicodeDecodeError as error:
            line = raw[: error.start].count(b"\n") + 1
            raise ConfigError(f"{file}:{line}: this is not UTF-8. Save the file as UTF-8.") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(_syntax(file, text, str(error))) from None

    @property
    def folder(self) -> Path:
        """What relative paths of the file are relative to."""
        return self.file.parent if self.file else Path()

    def section(self, name: str) -> Mapping[str, Any]:
        """A table of the file; empty if it is missing or no table."""
        found = self.data.get(name, {})
        return found if isinstance(found, dict) else {}

    def wrong(self, told: str, *path: str) -> None:
        """Remember what is wrong at a place of the file."""
        line = _line(self.text, path)
        self.problems.append(f"{self.file}{f':{line}' if line else ''}: {told}")

    def check_tables(self) -> None:
        """Tables that nobody reads, and things that should be tables."""
        known = ("keep", "policy", "connectors", "workflows", "notify", "model")
        for name, value in self.data.items():
            if name not in known:
                shown = f"[{name}]" if isinstance(value, dict) else f"the key {name!r}"
                self.wrong(f"{shown} is unknown. {_advice(name, known, '[{}]')}", name)
            elif not isinstance(value, dict):
                self.wrong(f"{name} must be a table. Write [{name}] on a line of its own.", name)
        for key in self.section("keep"):
            if key not in KEEP_KEYS:
                self.wrong(f"[keep] {key} is unknown. {_advice(key, KEEP_KEYS)}", "keep", key)


def _syntax(file: Path, text: str, told: str) -> str:
    place = re.search(r"\s*\(at line (\d+), column (\d+)\)", told)
    if place:
        at, told = f":{place[1]}:{place[2]}", told.replace(place[0], "")
    else:
        at, told = f":{text.count(chr(10)) + 1}", re.sub(r"\s*\(at end of document\)", " at the end of the file", told)
    return f"{file}{at}: this is not TOML: {told}. Mend that line; strings stand in double quotes."


def _line(text: str, path: tuple[str, ...]) -> int | None:
    """The line on which a key or a table stands, as well as a plain look can tell."""
    section: list[str] = []
    best = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        key = re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line)
        if header:
            section = _names(header[1])
        here = section if header else [*section, *_names(key[1])] if key else []
        if here == list(path):
            return number
        if header and section == list(path[:-1]):
            best = number
    return best


def _names(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _advice(name: str, known: Iterable[str], form: str = "{}") -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"Did you mean {form.format(close[0])}?"
    shown = ", ".join(form.format(each) for each in known[:4]) + (", …" if len(known) > 4 else "")
    return f"Known: {shown}."


# -- what the tables say ---------------------------------------------------------------------------


def typed_place(place: str | Path) -> Path | str:
    """The place of a ledger that somebody typed: a file, or an address, which others can see in a list of processes."""
    if not is_address(place):
        return Path(place)
    wrong = mistake(str(place)) or (_EXPOSED.format("on the command line, others on this machine can read it")
                                    if has_password(str(place)) else None)
    if wrong:
        raise ConfigError(wrong)
    return str(place)


_EXPOSED = (
    "There is a password in the address of the ledger; {}. Leave it out: PostgreSQL finds it in the environment "
    f"variable PGPASSWORD or in ~/.pgpass. Or give the whole address in {ENV_ADDRESS}."
)


def _ledger_of(env: Mapping[str, str]) -> Path | str | None:
    """The ledger that the environment names, if it does: nobody else reads it there, so a password may be in it."""
    file, address = env.get(ENV_FILE), env.get(ENV_ADDRESS)
    if file and address:
        raise ConfigError(f"{ENV_FILE} names a file, and {ENV_ADDRESS} a database: there is one ledger. Unset one.")
    if file and is_address(file):
        raise ConfigError(f"{ENV_FILE} names a file. Give the address of a database in {ENV_ADDRESS} instead.")
    if not address:
        return Path(file) if file else None
    if not is_address(address):
        raise ConfigError(f"{ENV_ADDRESS} must be an address such as {EXAMPLE}. {ENV_FILE} names a file.")
    wrong = mistake(address)
    if wrong:
        raise ConfigError(f"{ENV_ADDRESS}: {wrong}")
    return address


def _ledger(source: _Source) -> Path | str:
    """The ledger that keep.toml names."""
    table = source.section("keep")
    path, address = table.get("path", LEDGER), table.get("ledger")
    if address is not None:
        wrong = _wrong_address(address, has_file="path" in table)
        if wrong:
            source.wrong(f"[keep] {wrong}", "keep", "ledger")
        return str(address)
    if isinstance(path, str) and is_address(path):
        source.wrong("[keep] path names a file. Write the address of a database as ledger instead.", "keep", "path")
    elif not isinstance(path, str) or not path or "\0" in path:
        source.wrong(f'[keep] path must be the name of a file, such as "{LEDGER}", not {path!r}.', "keep", "path")
        path = LEDGER
    return source.folder / Path(path).expanduser()


def _wrong_address(address: object, *, has_file: bool) -> str | None:
    """What is wrong with the `ledger` of a keep.toml, which others may come to read."""
    if not isinstance(address, str) or not is_address(address):
        return f'ledger must be the address of a database, such as "{EXAMPLE}". A file is named by path.'
    if has_file:
        return "names two ledgers: path is a file, and ledger a database. Remove one."
    if has_password(address):
        return "ledger: " + _EXPOSED.format("keep.toml is copied and shown to others")
    wrong = mistake(address)
    return f"ledger: {wrong}" if wrong else None


def _key_file(source: _Source, given: str | None) -> Path | None:
    if given is not None:
        return Path(given).expanduser()
    path = source.section("keep").get("key_file")
    if path is not None and (not isinstance(path, str) or not path or "\0" in path):
        source.wrong('[keep] key_file must be the name of a file, such as "~/.keep.key".', "keep", "key_file")
        return None
    return source.folder / Path(path).expanduser() if path is not None else None


def _repair(source: _Source) -> tuple[str, ...] | str:
    words = source.section("keep").get("repair", [])
    if words == MODEL:
        return MODEL
    if not isinstance(words, list) or not all(isinstance(w, str) and w for w in words):
        source.wrong(f'[keep] repair must be a list of words, such as ["./mend"], or "model", not {words!r}.',
                     "keep", "repair")
        return ()
    return tuple(words)


def _hooks(source: _Source) -> tuple[str, int]:
    return _place(source, "hooks", HOOKS) or ("127.0.0.1", 0)


def _optional_place(source: _Source, key: str) -> tuple[str, int] | None:
    return _place(source, key, PROBES) if key in source.section("keep") else None


def _place(source: _Source, key: str, usual: str) -> tuple[str, int] | None:
    given = source.section("keep").get(key, usual)
    place = place_of(given) if isinstance(given, str) else None
    if place is None:
        source.wrong(f'[keep] {key} must be an address and a port, such as "{usual}", not {given!r}.', "keep", key)
    return place


def place_of(text: str) -> tuple[str, int] | None:
    """An address and a port; None if the text has no such form."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _model(source: _Source) -> ModelSettings | None:
    """The table [model]; None without one, or if something in it is wrong."""
    given = dict(source.section("model"))
    if not given:
        return None
    texts = ("wire", "name", "url", "key", "certificates")
    wrong = [f"{key} is unknown. {_advice(key, (*texts, 'networks', *MODEL_NUMBERS))}"
             for key in given if key not in (*texts, "networks", *MODEL_NUMBERS)]
    wrong += [f"{key} must be text, not {given[key]!r}." for key in texts
              if key in given and (not isinstance(given[key], str) or not given[key])]
    wrong += _wrong_numbers(given)
    networks = given.get("networks", [])
    if not isinstance(networks, list) or not all(isinstance(each, str) for each in networks):
        wrong.append(f'networks must be a list such as ["127.0.0.0/8"], not {networks!r}.')
    if given.get("wire") not in WIRES:
        wrong.append(f"wire must be one of {', '.join(WIRES)}.")
    elif not given.get("url") and WIRES[given["wire"]] is None:
        wrong.append(f'url is missing: say where the service is, such as "{OLLAMA}".')
    if not given.get("name"):
        wrong.append("name is missing: say which model to ask.")
    if "money_max" in given and not (given.get("price_in") or given.get("price_out")):
        wrong.append("money_max needs price_in and price_out, the prices of a million tokens.")
    if "model" in source.section("connectors"):
        wrong.append("is there, and [connectors.model] too: both would keep their secrets under one name. "
                     "Name the connector otherwise.")
    for told in wrong:
        source.wrong(f"[model] {told}", "model", told.partition(" ")[0])
    if wrong:
        return None
    certificates = given.get("certificates")
    placed = {"networks": tuple(networks), "url": given.get("url") or WIRES[given["wire"]],
              "certificates": str(source.folder / Path(certificates).expanduser()) if certificates else None}
    return ModelSettings(**{**given, **placed})


OLLAMA = "http://127.0.0.1:11434/v1"


def _wrong_numbers(given: Mapping[str, Any]) -> list[str]:
    """What is wrong with the numbers in [model]."""
    wrong = []
    for name in MODEL_NUMBERS:
        value, default = given.get(name, 1), getattr(ModelSettings, name)
        whole = isinstance(default, int) and name.endswith("s_max") and name != "minutes_max"
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not math.isfinite(value) or value < 0 or (name.endswith("_max") and not value):
            wrong.append(f"{name} must be {'a whole number' if whole else 'a number'} above zero, not {value!r}.")
    return wrong


def _policy(source: _Source, env: Mapping[str, str]) -> Policy:
    known = {name: default for name, default, _ in policy_settings()}
    values: dict[str, Any] = {}
    for name, value in source.section("policy").items():
        wrong = _misfit(name, value, known)
        if wrong:
            source.wrong(f"[policy] {wrong}", "policy", name)
        else:
            values[name] = value
    for variable, text in env.items():
        if variable.startswith(ENV_POLICY):
            name = variable.removeprefix(ENV_POLICY).lower()
            value = _value(text, known.get(name))
            wrong = _misfit(name, value, known)
            if wrong:
                source.problems.append(f"{variable}: {wrong}")
            else:
                values[name] = value
    return Policy(**values, limits=_limits(source))


def _limits(source: _Source) -> dict[str, FlowLimit]:
    """How fast, and when, connections and workflows may send: by place, such as "connectors.slack"."""
    found = {}
    for section, keys in (("connectors", CONNECTOR_KEYS), ("workflows", WORKFLOW_KEYS)):
        for name, table in source.section(section).items():
            given = {key: table[key] for key in keys if key in table} if isinstance(table, dict) else {}
            try:
                limit = limit_of(given)
            except ConfigError as error:
                at = next((key for key in given if error.message.startswith(key)), next(iter(given)))
                source.wrong(f"[{section}.{name}] {error.message}", section, name, at)
                continue
            if given:
                found[f"{section}.{name}"] = limit
    return found


def _misfit(name: str, value: object, known: Mapping[str, object]) -> str | None:
    """What is wrong with one setting of the policy."""
    if name not in known:
        return f"{name} is unknown. {_advice(name, known)}"
    default = known[name]
    whole = isinstance(default, int) and not name.endswith("_s")
    if isinstance(default, int | float) and not isinstance(default, bool):
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
            unit = " of seconds" if name.endswith("_s") else " of bytes" if "bytes" in name else ""
            kind = "a whole number" if whole else "a number"
            return f"{name} must be {kind}{unit} above zero, such as {default}, not {value!r}."
        return None
    try:
        Policy(**{name: value})  # type: ignore[arg-type]
    except ConfigError as error:
        return error.message.removeprefix("Policy ")
    return None


def _value(text: str, default: object) -> object:
    """What a variable's text says, for a setting with this default."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text, text)
    for kind in (int, float) if isinstance(default, int | float) else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _grants(source: _Source, workflow: str) -> dict[str, Any]:
    """What a deploy of a workflow sets: capability → its rule, and `waiting`. `gmail.send` without quotes is a table in
    a table."""
    table = source.section("workflows")[workflow]
    if not isinstance(table, dict) or not isinstance(table.get("grants", {}), dict):
        source.wrong(f"[workflows.{workflow}] and its grants must be tables.", "workflows", workflow)
        return {}
    known = ("grants", "waiting", *WORKFLOW_KEYS)
    for key in set(table) - {*known}:
        told = f"[workflows.{workflow}] {key} is unknown. {_advice(key, known)}"
        source.wrong(told, "workflows", workflow, key)
    found: dict[str, Any] = {}
    if "waiting" in table:
        found["waiting"] = table["waiting"]
        if table["waiting"] not in [*Waiting]:
            told = f"[workflows.{workflow}] waiting must be {', '.join(Waiting)}, not {table['waiting']!r}."
            source.wrong(told, "workflows", workflow, "waiting")
    for name, entry in table.get("grants", {}).items():
        if "." not in name and not isinstance(entry, dict):
            told = f'{name!r} is no capability. Write it so: "sheets.appendRow" = "ask".'
            source.wrong(f"[workflows.{workflow}.grants] {told}", "workflows", workflow, "grants", name)
            continue
        spelled = {name: entry} if "." in name else {f"{name}.{each}": rule for each, rule in entry.items()}
        for capability, rule in spelled.items():
            place = ("workflows", workflow, "grants", *capability.split("."))
            try:
                found[capability] = grant_of(rule, capability).to_json()
            except ConfigError as error:
                source.wrong(f"[workflows.{workflow}.grants] {error.message}", *place)
    return found


def _connectors(source: _Source, make: Make | None) -> list[Any]:
    if make is None:
        return _made(source, "connectors", "local.mail", None)
    return _made(source, "connectors", "local.mail", lambda kind, name, rest: make(kind, name, rest, source.folder))


def _channels(source: _Source, make: MakeChannel | None) -> list[Any]:
    if make is None:
        return _made(source, "notify", "email", None)

    def one(kind: str, name: str, rest: dict[str, Any]) -> Any:
        digest = rest.pop("digest", None)
        if digest is not None and not isinstance(digest, str):
            raise ConfigError(f'digest must be such as "daily 08:00 Europe/Berlin", not {digest!r}.')
        return make(kind, name, rest, source.folder, digest)

    return _made(source, "notify", "email", one)


def _made(
    source: _Source, section: str, example: str, make: Callable[[str, str, dict[str, Any]], Any] | None,
) -> list[Any]:
    """What the tables of a section describe, each with its type."""
    made, not_its_own = [], {"type", *(CONNECTOR_KEYS if section == "connectors" else ())}
    for name, entry in source.section(section).items():
        place = f"[{section}.{name}]"
        if not isinstance(entry, dict):
            source.wrong(f'{place} must be a table with a type, such as type = "{example}".', section, name)
        elif not isinstance(entry.get("type"), str):
            told = f'{place} needs a type, such as type = "{example}"'
            source.wrong(told + (f", not {entry['type']!r}." if "type" in entry else "."), section, name, "type")
        elif make is not None:
            try:
                made.append(make(entry["type"], name, {k: v for k, v in entry.items() if k not in not_its_own}))
            except ConfigError as error:
                told = error.message if error.message.startswith(place) else f"{place}: {error.message}"
                source.wrong(told, section, name)
    return made
