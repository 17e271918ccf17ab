"""`keep connect`: a connection's settings into keep.toml and its secrets into the vault, once they are known to work.

What it asks for is what the type's `__init__` takes and what its `secrets` name.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ...connectors import NOT_SETTINGS, load
from ...connectors.base import Connector
from ...connectors.mcp.mcp_connector import Mcp
from ...connectors.openapi.openapi_connector import OpenApi
from ...connectors.redacted import redacted, redactor_of
from ...connectors.sign_in import SignIn
from ...model.errors import ConfigError, Refused
from ...vault.file import replace as replace_file
from ..health_checks import FAIL, OK, HealthLine, check_connector
from ..webhooks import deliveries_placed
from . import secret_input
from .ask_host import require_presence
from .command_session import CommandSession, with_json, with_session
from .connect_api import kept_document, suggest_lookups, tell_suggestions
from .connect_tools import choose_tools, lock_tools, tell_tools
from .signing import sign_in
from .text import did_you_mean, echo, echo_json, plain, say
from .wiring import make_connector, vault_of


@click.command()
@click.argument("name")
@click.argument("type_name", metavar="TYPE")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="A setting of the type; may be repeated.")
@click.option("--secret", "sources", multiple=True, metavar="SECRET=SOURCE",
              help="Where a secret of the type is: - (stdin), file:PATH or env:VARIABLE; may be repeated.")
@click.option("--sign-in", "anew", is_flag=True, help="Sign in with a browser, also where a secret is stored already.")
@click.option("--no-browser", is_flag=True, help="Show the address to sign in at, and open no browser.")
@click.option("--unchecked", is_flag=True, help="Write and store it even if it does not answer.")
@click.option("--read", "reads", multiple=True, metavar="TOOL,TOOL",
              help="Of an MCP server: tools that only read. You confirm them by this.")
@click.option("--mutation", "mutations", multiple=True, metavar="TOOL,TOOL",
              help="Of an MCP server: other tools that scripts may call; `all` is all that are new or changed.")
@click.option("--suggest", is_flag=True, help="Of an OpenAPI document: add look-up rules to keep.toml, as comments.")
@with_json
@with_session
def connect(
    session: CommandSession, name: str, type_name: str, given: tuple[str, ...], sources: tuple[str, ...], anew: bool,
    no_browser: bool, unchecked: bool, reads: tuple[str, ...], mutations: tuple[str, ...], suggest: bool,
    as_json: bool,
) -> None:
    """Connect ctx.NAME with an outside system, and try it.

    At a terminal it asks for the settings of TYPE and, unseen, for its secrets. If people can sign in to TYPE with a
    browser, it opens the page and waits. Then it checks the connection. If the connection answers or cannot be checked,
    or if you say so, it adds [connectors.NAME] to keep.toml and stores the secrets, encrypted, in keep.secrets. A
    table that exists already stays as it is; then it asks only for the secrets.

    Of an MCP server it lists the tools, and you say which of them only read and which others scripts may call. That is
    kept in keep.mcp.lock. Run it again when the server has changed.

    Of an OpenAPI document (document=FILE or a URL) it takes the operations that you name; a URL is fetched, and kept
    beside keep.toml. With --suggest it looks for look-up rules.
    """
    require_presence(session)
    settings = session.settings()
    file = settings.file or Path(session.config or "keep.toml")
    there = connection(file, name)
    values = secret_input.pairs(given, "--set")
    if issubclass(load(type_name, file.parent), OpenApi):
        values = kept_document(name, values, there, file.parent)
    table = _table(name, type_name, file.parent, values, there)
    connector = make_connector(type_name, name, {k: v for k, v in table.items() if k != "type"}, file.parent)
    if (reads or mutations) and not isinstance(connector, Mcp):
        raise ConfigError("--read and --mutation name tools of an MCP server, and this type is none.")
    if suggest and not isinstance(connector, OpenApi):
        raise ConfigError("--suggest reads an OpenAPI document, and this type has none.")
    places = secret_input.pairs(sources, "--secret")
    offer = _offer(connector, places, anew)
    vault = vault_of(settings)
    stored = dict(vault.values(name)) if connector.secrets else {}
    trial = {**stored, **_secrets(connector, places, stored, offer, anew)}
    signs = offer is not None and (anew or (secret_input.at_terminal() and offer.secret not in trial))
    if offer and signs:
        _sign_in(connector, offer, trial, browser=secret_input.at_terminal() and not no_browser)
    with deliveries_placed([connector], settings.ledger):
        found = _tried(connector, trial)
    choice = choose_tools(connector, reads, mutations) if isinstance(connector, Mcp) and connector.offered else None
    if choice is not None:
        found = replace(found, state=OK, said="answers")
    if found.state == FAIL:
        hint = " With --sign-in you sign in with a browser." if offer and not signs else ""
        _refuse_unless_wanted(name, found.said + hint, unchecked)
    fresh = {secret: value for secret, value in trial.items() if stored.get(secret) != value}
    if fresh:
        vault.put(name, fresh)
    if there is None:
        add_connection(file, name, table)
    if choice is not None and isinstance(connector, Mcp):
        lock_tools(connector, choice)
    done = {"name": name, "type": type_name, "file": str(file), "added": there is None, "settings": table,
            "secrets": sorted(fresh), "checked": found.state == OK}
    done |= choice.as_json() if choice else {}
    echo_json(done) if as_json else _tell(done, found, sorted(set(connector.secrets) - trial.keys()))
    secret_input.warn_of_weak(fresh)
    if suggest and isinstance(connector, OpenApi):
        suggested = suggest_lookups(connector, file)
        None if as_json else tell_suggestions(connector, suggested)
    if choice is not None and isinstance(connector, Mcp):
        None if as_json else tell_tools(connector, choice)
        if choice.unconfirmed:
            sys.exit(4)


# -- settings --------------------------------------------------------------------------------------


def _table(
    name: str, type_name: str, folder: Path, given: Mapping[str, str], there: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The contents of `[connectors.NAME]`: as they are, or as they will be written."""
    kind = load(type_name, folder)
    known = {n: p for n, p in inspect.signature(kind).parameters.items()
             if n not in NOT_SETTINGS and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    exposed = next((key for key in given if key in kind.secrets and key not in known), None)
    if exposed:
        raise ConfigError(f"{exposed} is a secret: give it with --secret {exposed}=SOURCE, where SOURCE is "
                          f"{secret_input.SOURCES}. Change it if others could see this command.")
    values = {key: _value(key, text, known.get(key)) for key, text in given.items()}
    if there is None:
        asked = _ask_for(known, values) if secret_input.at_terminal() else {}
        return {"type": type_name, **values, **asked}
    wanted = {"type": type_name, **values}
    differs = next((key for key, value in wanted.items() if there.get(key) != value), None)
    if differs:
        raise Refused(f"keep.toml has [connectors.{name}] already, with another {differs}. Change it there; "
                      f"`keep secrets set {name} SECRET` changes a secret.")
    return dict(there)


def _ask_for(known: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that must be given and were not; then any other that the person wants."""
    left = {key: parameter for key, parameter in known.items() if key not in given}
    found = {key: _value(key, str(click.prompt(key, err=True)), parameter)
             for key, parameter in left.items() if parameter.default is parameter.empty}
    more = {key: parameter for key, parameter in left.items() if key not in found}
    if more:
        say("It also takes " + ", ".join(
            key if parameter.default in (None, "") else f"{key} ({toml(parameter.default)})"
            for key, parameter in more.items()) + ".")
    while more:
        word = str(click.prompt("KEY=VALUE, or Enter to go on", default="", show_default=False, err=True))
        key, equals, text = word.partition("=")
        if not word:
            break
        if equals and key in more:
            found[key] = _value(key, text, more.pop(key))
        else:
            say(f"It must be KEY=VALUE, with one of {', '.join(more)}.")
    return found


_SPOKEN = {"yes": True, "y": True, "on": True, "no": False, "n": False, "off": False}


def _value(key: str, text: str, parameter: inspect.Parameter | None) -> Any:
    """What a typed text means as the setting's type; whether it fits is said when the connector is made."""
    annotation = parameter.annotation if parameter else str
    named = str(getattr(annotation, "__name__", annotation))
    kinds = {each.strip() for each in named.split("|")} - {"None"}
    if annotation is inspect.Parameter.empty or any(kind == "str" or "Path" in kind for kind in kinds):
        return text
    if kinds == {"bool"} and text.lower() in _SPOKEN:
        return _SPOKEN[text.lower()]
    if kinds == {"list[str]"} and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tomllib.loads(f"value = {text}")["value"]  # true, 5, 2.5, ["a"], { a = 1 }
    except tomllib.TOMLDecodeError:
        return text


# -- secrets ---------------------------------------------------------------------------------------


def _secrets(
    connector: Connector, sources: Mapping[str, str], stored: Mapping[str, str], offer: SignIn | None, anew: bool,
) -> dict[str, str]:
    """The secrets that are given now: those of the options, and the others from the person at the terminal."""
    for secret in sources:
        if secret not in connector.secrets:
            known = did_you_mean(secret, connector.secrets) if connector.secrets else "It has none."
            raise ConfigError(f"{connector.name} has no secret {secret!r}. {known}")
    if list(sources.values()).count("-") > 1:
        raise ConfigError("Only one secret can come from stdin. Give the others with file:PATH or env:VARIABLE.")
    found = {each: secret_input.from_source(source, f"{connector.name}.{each}") for each, source in sources.items()}
    if secret_input.at_terminal():
        earned = offer.secret if offer else ""
        for secret, what in connector.secrets.items():
            if secret in found or (anew and secret == earned):
                continue
            enter = "keep the present one" if secret in stored else "sign in with a browser" if secret == earned else ""
            skip = f"to {enter}" if enter else "for none"
            typed = secret_input.ask_unseen(f"{secret} ({what}; Enter {skip})", empty=True)
            found |= {secret: typed} if typed else {}
    return found


def _offer(connector: Connector, sources: Mapping[str, str], anew: bool) -> SignIn | None:
    """How people can sign in instead of giving a secret. Refuses `--sign-in` where that is not possible."""
    offer = redacted(connector, redactor_of([connector])).sign_in()
    if anew and offer is None:
        raise ConfigError("Nobody can sign in to this type with a browser. Leave --sign-in out, and give its secrets.")
    if anew and offer and offer.secret in sources:
        raise ConfigError(f"--sign-in earns a {offer.secret}: leave one of them out, --sign-in or the --secret.")
    return offer


def _sign_in(connector: Connector, offer: SignIn, trial: dict[str, str], *, browser: bool) -> None:
    """Put what a sign-in earns among the secrets."""
    missing = next((each for each in offer.needs if each not in trial), None)
    if missing:
        raise ConfigError(f"Without the {missing} nobody can sign in: type it, or give it with --secret "
                          f"{missing}=SOURCE, where SOURCE is {secret_input.SOURCES}.")
    connector.entrust(trial)
    trial |= sign_in(offer, browser=browser)


def _tried(connector: Connector, secrets: dict[str, str]) -> HealthLine:
    """Whether the connection answers, in the words of `doctor`. A renewed secret is then in `secrets`."""
    connector.entrust(secrets)

    async def tried() -> HealthLine:
        try:
            return await check_connector(redacted(connector, redactor_of([connector])), _FIRST_S)
        finally:
            await connector.shut_down()

    return asyncio.run(tried())


_FIRST_S = 60.0  # a program that is an MCP server may have to be downloaded first


def _refuse_unless_wanted(name: str, problem: str, unchecked: bool) -> None:
    if unchecked:
        say(f"{name} does not answer: {problem}")
        return
    if secret_input.at_terminal():
        say(f"{name} does not answer: {problem}")
        if click.confirm("Write and store it nevertheless?", err=True):
            return
        raise Refused("Nothing was written or stored.")
    raise Refused(f"{name} does not answer: {problem} Nothing was written or stored; --unchecked does it nevertheless.")


def _tell(done: Mapping[str, Any], found: HealthLine, missing: list[str]) -> None:
    name, file = done["name"], plain(done["file"])
    echo(f"{found.name} {'was not checked.' if found.state == FAIL else found.said.rstrip('.') + '.'}")
    if done["added"]:
        echo(f"[connectors.{name}] is in {file}; restart a running host to use it.")
    if done["secrets"]:
        echo(f"Stored, encrypted: {', '.join(done['secrets'])}.")
    if missing:
        echo(f"Not given: {', '.join(missing)}. `keep secrets set {name} {missing[0]}` gives it.")


# -- keep.toml ----------------------------------------------------------------------------------------


def connection(file: Path, name: str) -> Mapping[str, Any] | None:
    """The table `[connectors.<name>]` that a keep.toml has; None if it has none."""
    data = tomllib.loads(_text(file))
    found = data.get("connectors", {}).get(name)
    return found if isinstance(found, dict) else None


def add_connection(file: Path, name: str, table: Mapping[str, Any]) -> None:
    """Write `[connectors.<name>]` at the end of a keep.toml, or into a new one."""
    before = _text(file)
    entry = [f"[connectors.{_key(name)}]", *(f"{_key(key)} = {toml(value)}" for key, value in table.items())]
    line = "\r\n" if "\r\n" in before else "\n"
    gap = "" if not before else line if before.endswith("\n") else line * 2
    after = before + gap + line.join(entry) + line
    if not _is_added(before, after, name, table):
        raise ConfigError(f"{file} cannot be added to. Add this to it yourself:\n" + "\n".join(entry))
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    replace_file(file, after.encode("utf-8"), mode)


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)


def _text(file: Path) -> str:
    return file.read_bytes().decode("utf-8") if file.exists() else ""


def _is_added(before: str, after: str, name: str, table: Mapping[str, Any]) -> bool:
    """Whether the new text says what the old one said, and the table."""
    try:
        said, old = tomllib.loads(after), tomllib.loads(before)
    except tomllib.TOMLDecodeError:
        return False
    added = said.get("connectors", {}).pop(name, None)
    if not said["connectors"] and "connectors" not in old:
        del said["connectors"]
    return added == dict(table) and said == old
