"""What the runtime needs to be in place: the interpreter's file, its compiled form, the locks."""

from __future__ import annotations

import ast
import inspect
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime

from keepai.model.errors import ConfigError, Location
from keepai.runtime.javascript import cache, linux, wasm
from keepai.runtime.javascript.loaded_scripts import SourcePlaces


def test_a_missing_interpreter_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make setup"):
        wasm.wasm_bytes(tmp_path / "quickjs.wasm")


def test_another_interpreter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quickjs.wasm").write_bytes(b"\0asm")
    with pytest.raises(ConfigError, match="not the pinned one"):
        wasm.wasm_bytes(tmp_path / "quickjs.wasm")


def test_the_pinned_hash_can_be_read_without_wasmtime() -> None:
    imported = [
        name.name
        for node in ast.walk(ast.parse(inspect.getsource(wasm)))
        if isinstance(node, ast.Import)
        for name in node.names
    ]
    assert "wasmtime" not in imported
    code = "import sys; from keepai.runtime.javascript import wasm; assert 'wasmtime' not in sys.modules"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path})


# The cache holds machine code: whoever can write to it can run code as us.


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    path = tmp_path / "cache" / "module.cwasm"
    cache.store(path, b"code")
    return path


def test_what_we_stored_ourselves_is_trusted_and_closed_to_others(compiled: Path) -> None:
    assert cache.trusted(compiled)
    assert compiled.stat().st_mode & 0o777 == 0o600
    assert compiled.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_trusted(compiled: Path, mode: int) -> None:
    compiled.chmod(mode)
    assert not cache.trusted(compiled)


def test_a_directory_that_others_can_write_is_not_trusted_nor_written(compiled: Path) -> None:
    compiled.parent.chmod(0o777)
    assert not cache.trusted(compiled)
    with pytest.raises(PermissionError):
        cache.store(compiled, b"new")


def test_a_link_is_not_trusted(compiled: Path) -> None:
    link = compiled.with_name("link.cwasm")
    link.symlink_to(compiled)
    assert not cache.trusted(link)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_not_trusted(compiled: Path) -> None:
    os.chown(compiled, 12345, 12345)
    assert not cache.trusted(compiled)


def test_a_broken_or_untrusted_cache_is_replaced_by_compiling(compiled: Path) -> None:
    engine = wasmtime.Engine()
    module = cache.load(engine, compiled, lambda: wasmtime.Module(engine, "(module)"))
    assert not module.exports
    assert cache.load(engine, compiled, pytest.fail).imports == []


def test_without_a_usable_directory_the_module_is_compiled_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    engine = wasmtime.Engine()
    cache.load(engine, tmp_path / "file" / "x.cwasm", lambda: wasmtime.Module(engine, "(module)"))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_system_calls_jumps_only_inside_itself(machine: str) -> None:
    program = linux.seccomp_program(machine)
    count = len(program) // 8
    for index, (code, yes, no, _) in enumerate(struct.iter_unpack("<HBBI", program)):
        if code & 0x07 == 0x05:
            assert index + 1 + max(yes, no) < count
    assert struct.unpack("<HBBI", program[-8:]) == (0x06, 0, 0, 0x80000000)


TRACES = {
    "nothing": ("", None),
    "no script": ("at f (<keep>:3:4)", None),
    "innermost": ("at f (<keep>:3:4)\nat g (script.js:1:3)\nat h (script.js:2:1)", Location(1, 3)),
    "beyond the end": ("at g (script.js:9:1)", None),
}


@pytest.mark.parametrize(("trace", "place"), TRACES.values(), ids=TRACES.keys())
def test_a_place_is_read_from_a_trace(trace: str, place: Location | None) -> None:
    assert SourcePlaces("ctx.gmail.get({\nx: other(1)})").find(trace) == place


READS = {
    "a call follows": ("get\nat g (script.js:1:1)", Location(1, 11)),
    "none follows": ("get\nat g (script.js:2:1)", None),
    "another name": ("search\nat g (script.js:1:1)", None),
    "no place": ("?", None),
}


@pytest.mark.parametrize(("read", "place"), READS.values(), ids=READS.keys())
def test_the_place_of_a_call_is_found_by_where_its_member_was_read(read: str, place: Location | None) -> None:
    places = SourcePlaces("ctx.gmail.get({\nx: other(1)})")
    assert [places.find_call(read), places.find_call(read)] == [place, place]
