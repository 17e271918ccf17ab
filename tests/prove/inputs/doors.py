"""The doors that people and programs use: the control socket and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from click.testing import CliRunner
from hypothesis import strategies as st

from keepai import Keep
from keepai.doors import control
from keepai.doors.cli.main import COMMANDS as NAMES
from keepai.doors.cli.main import keep as command
from keepai.model.acts import requests_of
from keepai.model.principals import Role
from tests.prove.inputs.property import Holds, Property
from tests.prove.inputs.pure import JSON, TEXT
from tests.prove.inputs.scripts import EXAMPLES, SOURCES, mutated

# The control socket

_OWNED = requests_of(Role.OWNER)
_WORKFLOW = "email-to-sheets"
_GIVEN = st.one_of(st.just(_WORKFLOW), TEXT, JSON, st.sampled_from(["allow", "ask", "deny", "all", "gmail.search"]))
_PARAMS = st.one_of(
    st.sampled_from(sorted(_OWNED)).flatmap(
        lambda act: st.fixed_dictionaries(
            {
                "act": st.just(act),
                "params": st.fixed_dictionaries(
                    {name: _GIVEN for name, param in _OWNED[act].items() if param.required},
                    optional={name: _GIVEN for name, param in _OWNED[act].items() if not param.required},
                ),
            }
        )
    ),
    st.fixed_dictionaries(
        {
            "act": st.just("deploy"),
            "params": st.fixed_dictionaries({"source": mutated()}, optional={"grants": _GIVEN, "strand": _GIVEN}),
        }
    ),
    st.dictionaries(
        TEXT | st.sampled_from(["act", "params"]), JSON | st.sampled_from(sorted(_OWNED)), max_size=3
    ),
)
_LINE = st.one_of(
    _PARAMS.map(lambda request: json.dumps(request).encode()),
    st.binary(max_size=200),
    JSON.map(lambda v: json.dumps(v).encode()),
    st.tuples(_PARAMS, st.integers(0, 200)).map(lambda drawn: json.dumps(drawn[0]).encode()[: drawn[1]]),
)


@contextmanager
def _listening() -> Iterator[Holds]:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        path, said = Path(folder) / "keep.db", list[str]()
        runner.get_loop().set_exception_handler(
            lambda _, context: said.append(str(context.get("exception") or context))
        )
        keep = Keep(path)
        runner.run(keep.__aenter__())
        door = control.ControlSocket(keep, path)
        runner.run(door.__aenter__())

        def one(line: bytes) -> None:
            said.clear()
            runner.run(_asked(path, line))
            assert said == [], said

        try:
            yield one
        finally:
            runner.run(door.__aexit__(None, None, None))
            runner.run(keep.close())


async def _asked(path: Path, line: bytes) -> None:
    """Whatever is asked is answered with one line of JSON, or not at all; and then the host still answers."""
    answer = await _sent(path, line + b"\n")
    told = json.loads(answer)
    assert told["ok"] is True or (told["error"]["code"] != "internal" and told["error"]["message"]), told
    assert json.loads(await _sent(path, b'{"act": "needs_you"}\n'))["ok"] is True


async def _sent(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(control.socket_path(path)), limit=1 << 24)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.readline(), 20)
    finally:
        writer.close()
        await writer.wait_closed()


REQUESTS = Property("control requests", _LINE, _listening, 60)


# The command line

#: What runs until a signal ends it.
_ENDLESS = {"demo", "dev", "serve", "--follow", "-f", "--watch"}
DRAWN = sorted(set(NAMES) - _ENDLESS)


def _options(group: click.Command) -> set[str]:
    found = {
        name
        for param in group.params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
    }
    if isinstance(group, click.Group):
        context = click.Context(group)
        parts = [group.get_command(context, name) for name in group.list_commands(context)]
        found |= {name for part in parts if part is not None for name in _options(part)}
    return found


_FILES = [
    "flow.js",
    "broken.js",
    "bytes.bin",
    "folder",
    "none.js",
    "keep.db",
    "keep.toml",
    "other.db",
    "no/such/file",
    ".",
]
_PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), max_size=12)
_WORD = st.one_of(
    st.sampled_from(DRAWN),
    st.sampled_from(sorted(_options(command) - _ENDLESS)),
    st.sampled_from(
        [
            _WORKFLOW,
            "wf_",
            "run_1",
            "mut_1",
            "evt_",
            "inp_",
            "itm_",
            "apr_",
            "all",
            "allow",
            "happened",
            "1.0",
            "-1",
            "0",
            "9" * 30,
            "2026-01-05",
            "{}",
            '{"a":',
            "nan",
            "gmail.search=ask",
            "=",
            "--",
            "-",
            "db",
            "check",
        ]
    ),
    st.sampled_from(_FILES),
    _PLAIN,
)
_ARGUMENTS = st.tuples(st.sampled_from(DRAWN), st.lists(_WORD, max_size=4)).map(
    lambda drawn: [drawn[0], *drawn[1]]
) | st.lists(_WORD, max_size=5)
_SETTINGS = (
    '[connectors.gmail]\ntype = "local.mail"\npath = "mail"\ncreate = true\n'
    '[connectors.sheets]\ntype = "local.sheets"\npath = "sheets"\ncreate = true\n'
)


@contextmanager
def _folder() -> Iterator[Holds]:
    """A folder with a ledger and files of every kind; what is typed can reach nothing else."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keep.toml").write_text(_SETTINGS, "utf-8")
        shutil.copy(EXAMPLES / "email-to-sheets.js", folder / "flow.js")
        (folder / "broken.js").write_text(SOURCES[0][:300], "utf-8")
        (folder / "bytes.bin").write_bytes(bytes(range(256)))
        (folder / "folder").mkdir()
        os.chdir(folder)
        try:
            CliRunner().invoke(command, ["deploy", "flow.js", "--grant", "all"], prog_name="keep")
            yield _typed
        finally:
            os.chdir(before)


def _typed(arguments: list[str]) -> None:
    """A documented exit code, no traceback, and a word on stderr if it did not work."""
    result = CliRunner().invoke(command, arguments, prog_name="keep")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in range(5), result.exit_code
    assert "Traceback" not in result.output
    assert result.exit_code in (0, 4) or result.output.strip(), "it failed without a word"


COMMANDS = Property("command lines", _ARGUMENTS, _folder, 60)
