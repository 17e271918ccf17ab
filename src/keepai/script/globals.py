"""Names of Node.js or a browser that scripts expect and the sandbox does not have.

Such a name ends the step when it is reached. A script that checks `typeof name` first is not reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .script_reading import ScriptReading
from .tree import Node, walk

_NAMES = frozenset({"identifier", "shorthand_property_identifier"})
_FAILS = frozenset({"function", "object", "constructor"})  # the roles in which `undefined` ends a step

_REQUEST = "Call a connector through `ctx`; one of type \"http\" makes requests."
_TIMER = "Remove it. To look again later, return `wakeAt` from `prepare`, or write a `schedule`; the host retries."
_FORMAT = "Write the format out, with `toISOString()`, `toFixed()`, `padStart()` and the like."
_BYTES = "Use `TextEncoder`, `TextDecoder`, `atob` and `btoa`; values for `ctx` are JSON."
_CHANCE = "Make ids from the id of the outside object; the host makes the keys that calls are known by."
_SETTING = "Write settings into the script; secrets belong to connectors, and no script sees them."
_MODULE = "Remove it: a script is one ES module, `export default Keep.workflow({…})`, and imports nothing."
_CLOCK = "Use `Date.now()`."
_KEPT = "What must last is the state that a handler returns, or an event."
_PAGE = "Remove it: a script runs on the host, in no page."
_NODE = "Remove it: scripts see only `ctx` and the language itself."

#: Name → what to do instead.
ABSENT: Mapping[str, str] = MappingProxyType({
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "EventSource", "Request", "Response", "Headers",
                     "FormData", "axios"), _REQUEST),
    **dict.fromkeys(("setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval", "clearImmediate",
                     "requestAnimationFrame", "requestIdleCallback"), _TIMER),
    **dict.fromkeys(("Buffer", "Blob", "File", "FileReader"), _BYTES),
    **dict.fromkeys(("process", "Deno", "Bun"), _SETTING),
    **dict.fromkeys(("module", "exports", "__dirname", "__filename", "importScripts"), _MODULE),
    **dict.fromkeys(("localStorage", "sessionStorage", "indexedDB", "caches"), _KEPT),
    **dict.fromkeys(("window", "document", "self", "navigator", "location", "alert", "confirm", "prompt"), _PAGE),
    **dict.fromkeys(("global", "Worker", "SharedArrayBuffer", "Atomics", "WebAssembly", "WeakRef",
                     "FinalizationRegistry", "AbortController", "AbortSignal", "Event", "EventTarget",
                     "MessageChannel", "ReadableStream", "WritableStream"), _NODE),
    "Intl": _FORMAT, "crypto": _CHANCE, "performance": _CLOCK, "require": _MODULE,
})


def check_globals(reading: ScriptReading) -> None:
    """Report every use of a name that the sandbox does not have."""
    used = [(node, node.text) for node in walk(reading.root)
            if node.kind in _NAMES and reading.scopes.binding(node) is None]
    parents = [(node.parent, name) for node, name in used if node.parent is not None]
    asked = {name for parent, name in parents if parent.kind == "unary_expression" and parent.tokens == ["typeof"]}
    for node, written in used:
        name = _member_used(node) if written == "globalThis" else written
        if name in ABSENT and name not in asked and name != "require":  # that one is reported as an import
            reading.add("missing-global", node, f"A script has no `{name}`, so the run will fail here.", ABSENT[name])


def _member_used(node: Node) -> str:
    """The member of `globalThis` that must exist, because it is called or read from; empty if there is none."""
    member = node.parent
    name = member.get("property") if member is not None and node.field == "object" else None
    if member is None or name is None or member.parent is None or member.field not in _FAILS:
        return ""
    return "" if any(child.kind == "optional_chain" for child in member.parent.children) else name.text
