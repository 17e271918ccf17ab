"""`keep connect` of an OpenAPI document: fetches it beside keep.toml, and suggests look-up rules for its operations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...connectors.egress import Client, Rules
from ...connectors.openapi.api_document import BYTES_MAX, parsed_document
from ...connectors.openapi.lookup_guesses import guesses
from ...connectors.openapi.openapi_connector import OpenApi
from ...connectors.values import Call
from ...model.errors import Refused
from ...model.operations import Kind
from ...testing.contract.api_twin import prove
from ...vault.file import replace
from .text import echo

_FETCH_S = 60.0


def kept_document(
    name: str, given: Mapping[str, str], there: Mapping[str, Any] | None, folder: Path,
) -> dict[str, str]:
    """The settings, with the document in a file: a URL is fetched, because what scripts may call must not change."""
    url = given.get("document", "")
    if not url.startswith(("https://", "http://")):
        return dict(given)
    typed = [each.strip(' "') for each in given.get("networks", "").strip("[]").split(",") if each.strip()]
    networks = typed or (there or {}).get("networks", ())
    rules = Rules.under([url], networks, bytes_max=BYTES_MAX, seconds_max=_FETCH_S)
    answer = asyncio.run(Client(rules).get(url, Call(), headers={"Accept": "application/json"}))
    if not answer.ok:
        raise Refused(f"The document could not be fetched: {url} was answered with {answer.status}.")
    parsed_document(answer.content, url)
    file = f"{name}.openapi.json"
    replace(folder / file, answer.content, 0o644)
    return {**given, "document": file}


def suggest_lookups(connector: OpenApi, file: Path) -> list[str]:
    """Write look-up rules into keep.toml, as comments; gives the operations for which there is one."""
    lines, found, text = list[str](), list[str](), file.read_text("utf-8")
    for guess in guesses(connector):
        if json.dumps(guess.rule(connector.base)["on"]) in text:
            continue  # the owner has seen it
        report = asyncio.run(prove(guess, connector.document))
        if report.broken:
            continue
        found.append(guess.operation.name)
        rule = [f"{key} = {json.dumps(value)}" for key, value in guess.rule(connector.base).items()]
        lines += ["", f"# Suggested by the document for {guess.operation.name}, and proved against a twin made from it "
                  f"({len(report.trials)} trials).", "# It counts on two things that you must know: each call has "
                  f"another {guess.mark}, and the service filters by it.",
                  *(f"# {line}" for line in [f"[[connectors.{connector.name}.lookup]]", *rule])]
    if lines:
        replace(file, (text + "\n".join(lines) + "\n").encode(), file.stat().st_mode & 0o777)
    return found


def tell_suggestions(connector: OpenApi, found: list[str]) -> None:
    """Say what was suggested, and what remains a question to a person."""
    blind = [name for name, spec in connector.operations.items()
             if spec.kind is Kind.MUTATION and spec.safety == "C" and name not in found]
    if found:
        echo(f"Suggested in keep.toml, as comments: look-up rules for {', '.join(found)}. Read them first.")
    if blind:
        echo(f"Without a look-up rule: {', '.join(blind)}. If an answer is lost, a person is asked.")
