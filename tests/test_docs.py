"""The docs say what the code does: generated pages are fresh, everything has its row, links lead somewhere."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import click
import pytest

from keepai.config import table as settings_table
from keepai.connectors import TYPES, load
from keepai.connectors.base import Connector, surface
from keepai.connectors.local.mail import LocalMail
from keepai.connectors.local.sheets import LocalSheets
from keepai.doors.cli.main import keep
from keepai.model import states
from keepai.model.operations import Kind, Step
from keepai.model.policy import settings
from keepai.script.check import check
from keepai.script.findings import CODES
from keepai.testing.contract import Fault

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MADE = {".venv", ".venv-bench", ".venv-model", "node_modules", "dist", ".git"}
MADE |= {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
TEXTS = sorted(
    path for path in ROOT.rglob("*.md") if not MADE.intersection(path.relative_to(ROOT).parts)
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def first_cells(text: str) -> set[str]:
    """What stands in code at the beginning of a table's rows."""
    return set(re.findall(r"^\| (?:&emsp;)*`([^`]+)` \|", text, re.MULTILINE))


# Generated pages


@pytest.mark.parametrize("name", list(generator().PAGES))
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    stale = [name_of(path) for path in generator().stale()]
    assert f"docs/{name}" not in stale, "run `make docs`"


def test_check_says_what_is_stale_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = generator()
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(module, "HERE", tmp_path / "docs")
    assert module.main(["--check"]) == 1
    assert list((tmp_path / "docs").iterdir()) == []
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0
    broken = tmp_path / "docs" / "reference" / "errors.md"
    broken.write_text("old")
    assert module.main(["--check"]) == 1
    assert broken.read_text() == "old"


def test_the_generator_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"], capture_output=True, text=True, check=False, timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Everything has its place


def test_every_state_and_every_move_is_on_its_page() -> None:
    text = page("concepts/states.md")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for machine in states.MACHINES.values():
        section = sections[generator().TITLES[machine.name]]
        assert first_cells(section) >= set(machine.states)
        for source, targets in machine.moves.items():
            for target, why in targets.items():
                assert f"| `{source}` | `{target}` | {why} |" in section
                assert f"  {source} --> {target}: {why}" in section
    shown = {states.shown(status, reason) for status, reasons in states.REASONS.items() for reason in reasons}
    assert first_cells(sections["Reason of a run"]) == shown


def test_every_error_has_its_code_and_its_consequence() -> None:
    text = page("reference/errors.md")
    for kind, _ in generator().tree():
        assert re.search(rf"`{kind.__name__}` \| `{kind.code}` \| .+ \| `{kind.consequence}` \|", text), kind.__name__


def test_every_finding_has_its_row_under_its_severity() -> None:
    found, wanted = page("reference/findings.md").split("## Warnings"), ("error", "warning")
    for text, severity in zip(found, wanted, strict=True):
        assert first_cells(text) == {code for code, meaning in CODES.items() if meaning.severity == severity}


def test_the_scaffold_names_the_rule_behind_each_finding_of_a_common_mistake() -> None:
    text = (ROOT / "src/keepai/doors/cli/template/AGENTS.md").read_text("utf-8")
    rules = text[text.index("## Rules") : text.index("## Cases")]
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", rules))
    assert named <= set(CODES)
    assert named >= {
        "missing-global", "shared-state", "empty-publishes", "publishes-without-next", "state-outside", "state-changed",
        "param-missing", "param-unknown", "param-wrong", "promise-not-awaited", "promise-dropped", "input-id-ignored",
        "unknown-field", "call-caught", "retry-loop", "volatile-id",
    }


def test_every_setting_has_its_row() -> None:
    rows = first_cells(page("reference/settings.md"))
    assert rows == {setting.name for setting in settings_table()}
    assert rows >= {f"policy.{name}" for name, _, _ in settings()}


def test_every_operation_and_step_is_in_the_matrix() -> None:
    text = page("reference/phases.md")
    assert first_cells(text) == {*Kind, *Step}


def test_every_mutation_of_every_connector_was_tried_against_every_fault() -> None:
    table = [line.split(" | ") for line in page("reference/contract.md").splitlines() if line.startswith("|")]
    tried = {re.sub(r"^\| `([^`]+)`.*$", r"\1", line[0].strip()) for line in table[2:]}
    wanted = {f"{name}.{each}" for name in TYPES for each in mutations_of(load(name))}
    wanted.add("mcp.addNote")  # the tools of an MCP server are known only when it is asked; this one stands for all
    assert tried == wanted, "run `make contract ARGS=--write`"
    assert {cell.strip() for cell in table[0]} >= {fault.replace("_", " ") for fault in Fault}


def mutations_of(kind: type[Connector]) -> list[str]:
    """What a type of connector changes outside."""
    bare = kind.__new__(kind)
    bare.name = "bare"
    return [each for each, marked in kind._marked.items() if marked.spec(bare, each).kind is Kind.MUTATION]


def commands(group: click.Command, context: click.Context, name: str) -> list[str]:
    """Every command and every command of a command."""
    if not isinstance(group, click.Group):
        return [name]
    found = [] if name == "keep" else [name]
    for inner in group.list_commands(context):
        command = group.get_command(context, inner)
        assert command
        found += commands(command, click.Context(command, info_name=inner, parent=context), f"{name} {inner}")
    return found


def test_every_command_has_its_heading() -> None:
    headings = re.findall(r"^## (keep .+)$", page("reference/commands.md"), re.MULTILINE)
    assert headings == commands(keep, click.Context(keep, info_name="keep"), "keep")


def test_every_option_of_a_command_is_explained() -> None:
    context = click.Context(keep, info_name="keep")
    for name in keep.list_commands(context):
        command = keep.get_command(context, name)
        assert command
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"keep {name}: {option.opts[0]} has no help"


# Links and code


def anchors(path: Path) -> set[str]:
    """The places in a page that a link may name."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def prose(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^( *)(```|~~~).*?^\1\2", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"(?<!`)\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)", prose(path)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        goal = (path.parent / unquote(name)).resolve() if name else path
        if not goal.exists() or (anchor and goal.suffix == ".md" and anchor not in anchors(goal)):
            broken.append(target)
    assert not broken, f"{name_of(path)} links to nothing: {broken}"


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_every_path_of_the_repository_that_a_text_names_exists(path: Path) -> None:
    named = re.findall(r"`((?:docs|examples|tests|bench|src)/[\w./-]+)`", prose(path))
    missing = [each for each in named if not (ROOT / each).exists()]
    assert not missing, f"{name_of(path)} names what is not there: {missing}"


@pytest.mark.parametrize("path", [ROOT / "ARCHITECTURE.md", *sorted((DOCS / "internals").glob("*.md"))], ids=name_of)
def test_every_module_that_the_architecture_names_exists(path: Path) -> None:
    named = re.findall(r"`([a-z_]+/[\w/]*(?:\.\w+)?)`", prose(path))
    named = [each for each in named if not each.startswith(("docs/", "examples/", "tests/", "bench/", "src/"))]
    missing = [each for each in named if not (ROOT / "src/keepai" / each).exists()]
    assert not missing, f"{name_of(path)} names modules that are not there: {missing}"


def test_the_architecture_fits_on_one_page_and_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    assert len(text.split()) < 1_500
    rooms = {path.name for path in (ROOT / "src/keepai").iterdir() if (path / "__init__.py").exists()}
    assert not {room for room in rooms if f"`{room}/`" not in text}
    picture = (DOCS / "images/architecture.svg").read_text("utf-8")
    assert not {room for room in rooms - {"testing"} if f"{room}/" not in picture}


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_no_text_for_people_has_a_private_code_or_names_a_document_that_they_do_not_have(path: Path) -> None:
    found = re.findall(r"\b(?:[IR]\d{1,3}|DESIGN|INVARIANTS|REQUIREMENTS)\b", path.read_text("utf-8"))
    assert not found, f"{name_of(path)} says {found}: say what it means"


def test_the_readme_counts_the_types_of_connectors() -> None:
    words = {13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen"}
    kinds = re.findall(r"^## \S+$", (DOCS / "reference" / "connectors.md").read_text("utf-8"), re.MULTILINE)
    assert f"[{words[len(kinds)]} types](docs/reference/connectors.md)" in (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[tuple[str, str]]:
    """Every block of code in a language, with its place."""
    found = []
    for path in TEXTS:
        text = path.read_text("utf-8")
        for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            if match[2] == language:
                found.append((f"{name_of(path)}:{line}", textwrap.dedent(match[3])))
    return found


def test_the_blocks_of_code_are_found() -> None:
    places = {place.partition(":")[0] for place, _ in blocks("python")}
    assert "README.md" in places
    assert any("$ keep doctor" in code for _, code in blocks(""))


@pytest.mark.parametrize(("place", "code"), blocks("python"), ids=lambda part: part if ":" in part[:60] else "")
def test_python_in_the_docs_is_python(place: str, code: str) -> None:
    compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize(("place", "code"), blocks("python"), ids=lambda part: part if ":" in part[:60] else "")
def test_what_the_docs_import_exists(place: str, code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "keepai":
            module = importlib.import_module(node.module or "")
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{place}: {node.module} has no {missing}"


@pytest.mark.parametrize(("language", "read"), [("toml", tomllib.loads), ("json", json.loads)])
def test_data_in_the_docs_can_be_read(language: str, read: object) -> None:
    for place, code in blocks(language):
        try:
            read(code)  # type: ignore[operator]
        except ValueError as error:
            pytest.fail(f"{place}: {error}")


def fences() -> list[tuple[str, str]]:
    """Every block of code that is typed or shown in a terminal, with its place."""
    return [found for language in ("", "sh", "console") for found in blocks(language)]


def typed() -> list[tuple[str, str]]:
    """Every command line in the docs, with its place: after `$`, in a block of sh (also inside of a container), or in a
    line of prose."""
    after = [(place, line[2:]) for place, text in fences() for line in text.splitlines() if line.startswith("$ ")]
    container = re.compile(r"docker compose exec \S+ ")
    plain = [(place, container.sub("", line, 1)) for place, text in blocks("sh") for line in text.splitlines()]
    told = [(name_of(path), each) for path in TEXTS for each in re.findall(r"(?<!`)`(keep [^`\n]+)`", prose(path))]
    return [(place, line) for place, line in (*after, *plain, *told) if line.startswith(("keep ", "make "))]


def misfit(line: str) -> str | None:
    """What is wrong with a command line of `keep`, as far as its names tell."""
    command: click.Command = keep
    context = click.Context(keep, info_name="keep")
    words = shlex.split(line, comments=True)[1:]
    words = words[:next((n for n, word in enumerate(words) if word in ("|", ">", "2>", "2>>")), len(words))]
    while True:
        try:
            _, rest, _ = command.make_parser(context).parse_args(list(words))
        except click.UsageError as error:
            return error.format_message()
        if not isinstance(command, click.Group) or not rest:
            return f"too many words: {rest}" if rest else None
        inner = command.get_command(context, rest[0])
        if inner is None:
            return f"there is no command {rest[0]}"
        command, context, words = inner, click.Context(inner, info_name=rest[0], parent=context), rest[1:]


def test_every_command_in_the_docs_exists_with_its_options() -> None:
    lines = [(place, line) for place, line in typed() if line.startswith("keep ")]
    assert {"README.md", "docs/start.md", "docs/guides/people.md"} <= {place.partition(":")[0] for place, _ in lines}
    wrong = [f"{place}: {line}: {told}" for place, line in lines if (told := misfit(line))]
    assert not wrong, "\n".join(wrong)
    assert all(misfit(line) for line in ("keep nothing", "keep db nothing", "keep inputs --nothing", "keep doctor a b"))


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    lines = [line for _, line in typed() if line.startswith("make ")]
    assert {line.split()[1] for line in lines} <= targets
    assert any("demo" in line for line in lines)


def test_every_program_of_the_tests_that_the_docs_name_exists() -> None:
    named = {each for path in TEXTS for each in re.findall(r"python -m (tests[\w.]*\w)", path.read_text("utf-8"))}
    assert {"tests.prove", "tests.prove.webhook", "tests.connectors.matrix"} <= named
    missing = [each for each in sorted(named) if importlib.util.find_spec(each) is None]
    assert not missing


def test_every_workflow_in_the_docs_passes_check(tmp_path: Path) -> None:
    offered = surface([
        LocalMail(tmp_path, name="gmail", create=True), LocalSheets(tmp_path, name="sheets", create=True),
    ])
    scripts = [(place, code) for place, code in blocks("js") if "export default Keep.workflow(" in code]
    assert {place.partition(":")[0] for place, _ in scripts} >= {"README.md", "docs/start.md"}
    for place, code in scripts:
        found = check(code, offered).findings
        assert not found, f"{place}: {[(each.line, each.message) for each in found]}"


def test_every_page_can_be_found_from_the_first_one() -> None:
    reached, left = set[Path](), [DOCS / "README.md"]
    while left:
        path = left.pop()
        reached.add(path)
        targets = re.findall(r"\]\(([^)#\s]+)", prose(path)) if path.suffix == ".md" else []
        goals = {(path.parent / unquote(each)).resolve() for each in targets if ":" not in each}
        left += [goal for goal in goals - reached if goal.is_file()]
    missing = {name_of(path) for path in DOCS.rglob("*") if path.suffix in (".md", ".png", ".svg")} - {
        name_of(path) for path in reached if path.is_relative_to(ROOT)
    }
    assert missing <= {"docs/images/page.png"}, missing  # the README's own


def test_pages_have_one_title_and_end_with_a_line() -> None:
    for path in TEXTS:
        text = path.read_text("utf-8")
        assert text.endswith("\n"), name_of(path)
        assert len(re.findall(r"^# ", prose(path), re.MULTILINE)) == 1, name_of(path)
