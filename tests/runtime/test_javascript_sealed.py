"""A worker that was taken over finds no memory that it can write and run, and can make none."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys

import pytest

from keepai.runtime.javascript import linux
from keepai.runtime.javascript.runtime import JavaScriptRuntime
from tests.runtime.script_world import FakeHost, children, job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these locks")


def writable_code(pid: int | str) -> list[str]:
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return [line.strip() for line in maps if {"w", "x"} <= set(line.split()[1])]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.skipif(os.geteuid() != 0, reason="a worker that is not dumpable hides its memory from its own user")
async def test_no_page_of_a_running_worker_can_be_written_and_run(host: FakeHost) -> None:
    runtime = JavaScriptRuntime(workers_max=1)
    try:
        body = "console.log(1); await ctx.gmail.get(1); return [new Date(), Math.random()];"
        await runtime.run(job(body), host)  # every kind of call from the script to the host
        [worker] = children(runtime)
        assert writable_code(worker) == []
        assert all(protection.active for protection in await runtime.protections() if "code" in protection.name)
    finally:
        await runtime.close()


def run_alone(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, "-c", program, *args], {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)


SEAL = """
import ctypes, mmap, os, sys
from keepai.runtime.javascript import linux
page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
called = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 5)
if sys.argv[1] == "refused":
    linux._libc = lambda: type("Libc", (), {"mprotect": staticmethod(lambda *_: 0)})
linux.no_writable_code()
print(called(), sum({"w", "x"} <= set(line.split()[1]) for line in open("/proc/self/maps")), flush=True)
os._exit(0)  # as a worker ends: the callback cannot be freed
"""


def test_code_that_was_there_still_runs_after_it_was_sealed() -> None:
    done = run_alone(SEAL, "really")
    assert (done.returncode, done.stdout) == (0, "5 0\n"), done.stderr


def test_a_page_that_stays_writable_code_is_reported() -> None:
    done = run_alone(SEAL, "refused")
    assert done.returncode == 1
    assert "OSError" in done.stderr
    assert "can still be written and run" in done.stderr


LOCKED = """
import ctypes, mmap, os, sys
from keepai.runtime.javascript import linux
syscall = linux._libc().syscall
size = ctypes.c_size_t(mmap.PAGESIZE)
page = mmap.mmap(-1, mmap.PAGESIZE)
at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
linux.prepare()
linux.no_new_privileges()
linux.few_system_calls()
number, prot = int(sys.argv[1]), int(sys.argv[2])
if sys.argv[3] == "map":
    done = syscall(number, None, size, prot, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_size_t(0))
else:
    done = syscall(number, at, size, prot, 0)
os._exit(0 if done != -1 else 9)
"""
MMAP, MPROTECT = {"x86_64": (9, 10), "aarch64": (222, 226)}.get(platform.machine(), (0, 0))
READ, WRITE, EXEC = 1, 2, 4
TRIES = {
    "a page to read and write": (MMAP, READ | WRITE, "map", 0),
    "a page made read-only": (MPROTECT, READ, "change", 0),
    "a page to run": (MMAP, READ | EXEC, "map", -signal.SIGSYS),
    "a page to write and run": (MMAP, READ | WRITE | EXEC, "map", -signal.SIGSYS),
    "a page made to run": (MPROTECT, READ | EXEC, "change", -signal.SIGSYS),
    "a page made to write and run": (MPROTECT, READ | WRITE | EXEC, "change", -signal.SIGSYS),
}
#: Other ways to memory that runs, by the numbers of x86_64.
OTHERS = {"pkey_mprotect": 329, "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "shmat": 30, "personality": 135,
          "execve": 59, "execveat": 322, "prctl": 157, "ptrace": 101, "process_vm_writev": 311, "io_uring_setup": 425,
          "userfaultfd": 323, "remap_file_pages": 216, "open": 2, "openat": 257, "uselib": 134, "modify_ldt": 154}
if platform.machine() == "x86_64":
    TRIES |= {name: (number, 0, "change", -signal.SIGSYS) for name, number in OTHERS.items()}


@pytest.mark.skipif(platform.machine() not in linux._TABLES, reason="no table of system calls for this machine")
@pytest.mark.parametrize(("number", "prot", "form", "code"), TRIES.values(), ids=TRIES)
def test_a_locked_worker_cannot_make_memory_that_runs(number: int, prot: int, form: str, code: int) -> None:
    done = run_alone(LOCKED, str(number), str(prot), form)
    assert done.returncode == code, done.stderr
