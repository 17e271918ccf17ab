"""What Linux offers an ordinary process to lock itself in, by ctypes alone; each function raises `OSError`.

The order matters and is kept by `harden.py`: the memory is sealed first, because that reads /proc; namespaces and
Landlock bind one thread, so they come before threads; seccomp is last, because it forbids the calls that the others
need.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import signal
import struct

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT, _LANDLOCK_VERSION = 444, 446, 1
_NEW_USER, _NEW_NET, _NEW_IPC, _NEW_UTS = 0x10000000, 0x40000000, 0x08000000, 0x04000000


def prepare() -> None:
    """Load and build what the functions below need, so that forked processes find it."""
    _libc()
    if platform.machine() in _TABLES:
        seccomp_program(platform.machine())


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Get a signal that ends this process when the one that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, by)


def no_writable_code() -> None:
    """Take the right to write from all memory that can be run: ctypes keeps its callbacks in such a page.

    A callback that is made or freed after this ends the process; a worker makes and frees none."""
    for start, end in _writable_code():
        protected = _libc().mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _PROT_READ | _PROT_EXEC)
        _checked(protected, "mprotect")
    if left := _writable_code():
        raise OSError(0, f"{len(left)} ranges of memory can still be written and run")


def _writable_code() -> list[tuple[int, int]]:
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            addresses, rights, *_ = line.split()
            if "w" in rights and "x" in rights:
                start, end = addresses.split("-")
                found.append((int(start, 16), int(end, 16)))
    return found


def not_dumpable() -> None:
    """No core dump, no tracing, and /proc/<pid> belongs to root."""
    _prctl(_PR_SET_DUMPABLE, 0)


def no_new_privileges() -> None:
    """No set-user-id program can raise us, which Landlock and seccomp require."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def no_network() -> None:
    """Own, empty namespaces for the network, IPC and host name, inside an own user namespace."""
    _checked(_libc().unshare(_NEW_USER | _NEW_NET | _NEW_IPC | _NEW_UTS), "unshare")


def no_files() -> None:
    """Landlock: no path can be opened; also no TCP and no signals to others where the kernel knows them."""
    syscall = _libc().syscall
    version = syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    _checked(version, "landlock")
    attributes = _landlock_attributes(version)
    ruleset = syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    _checked(ruleset, "landlock_create_ruleset")
    try:
        _checked(syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _landlock_attributes(version: int) -> bytes:
    """Every right that this version of Landlock can take away."""
    files = (1 << 13) - 1
    files |= (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
    network = 3 if version >= 4 else 0
    scopes = 3 if version >= 6 else 0
    size = 8 if version < 4 else 16 if version < 6 else 24
    return struct.pack("<QQQ", files, network, scopes)[:size]


# ---- seccomp ------------------------------------------------------------------------------------------------

_SECCOMP_FILTER, _SECCOMP_TSYNC = 1, 1
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_AT_NUMBER, _AT_ARCH, _AT_THIRD_ARGUMENT = 0, 4, 32
_PROT_READ, _PROT_EXEC = 1, 4
_X32 = 0x40000000  # the second calling convention of x86_64, which would slip past the numbers

#: machine → (audit number, number of seccomp(2), calls allowed)
_TABLES: dict[str, tuple[int, int, dict[str, int]]] = {
    "x86_64": (0xC000003E, 317, {
        "read": 0, "write": 1, "close": 3, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
        "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35,
        "getpid": 39, "sendto": 44, "recvfrom": 45, "exit": 60, "gettimeofday": 96, "sigaltstack": 131,
        "gettid": 186, "futex": 202, "sched_getaffinity": 204, "restart_syscall": 219, "clock_gettime": 228,
        "clock_getres": 229, "clock_nanosleep": 230,
        "exit_group": 231, "set_robust_list": 273, "getrandom": 318, "membarrier": 324, "rseq": 334,
    }),
    "aarch64": (0xC00000B7, 277, {
        "read": 63, "write": 64, "close": 57, "mmap": 222, "mprotect": 226, "munmap": 215, "brk": 214,
        "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "sched_yield": 124, "mremap": 216,
        "madvise": 233, "nanosleep": 101, "getpid": 172, "sendto": 206, "recvfrom": 207, "exit": 93,
        "gettimeofday": 169, "sigaltstack": 132, "gettid": 178, "futex": 98, "sched_getaffinity": 123,
        "restart_syscall": 128, "clock_gettime": 113,
        "clock_getres": 114, "clock_nanosleep": 115, "exit_group": 94, "set_robust_list": 99, "getrandom": 278,
        "membarrier": 283, "rseq": 293,
    }),
}


def few_system_calls() -> None:
    """Seccomp, for all threads: only what computing and one socket need; no new executable memory."""
    machine = platform.machine()
    if machine not in _TABLES:
        raise OSError(0, f"no table of system calls for {machine}")
    _, seccomp, _ = _TABLES[machine]
    program = seccomp_program(machine)
    code = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    refused = _libc().syscall(seccomp, _SECCOMP_FILTER, _SECCOMP_TSYNC, pointer)
    _checked(-1 if refused else 0, "seccomp")  # a positive number is a thread that could not follow


@functools.cache
def seccomp_program(machine: str) -> bytes:
    """The filter: kill on a foreign architecture, on executable memory, and on every call not in the table."""
    arch, _, calls = _TABLES[machine]
    code = [_load(_AT_ARCH), _jump(_EQUAL, arch, 1, 0), _return(_KILL), _load(_AT_NUMBER)]
    code += [_jump(_AT_LEAST, _X32, 0, 1), _return(_KILL)]
    for name, number in calls.items():
        if name in ("mmap", "mprotect"):
            code += [_jump(_EQUAL, number, 0, 4), _load(_AT_THIRD_ARGUMENT), _jump(_ANY_BIT, _PROT_EXEC, 0, 1)]
            code += [_return(_KILL), _return(_ALLOW)]
        else:
            code += [_jump(_EQUAL, number, 0, 1), _return(_ALLOW)]
    return b"".join([*code, _return(_KILL)])


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _jump(test: int, value: int, if_true: int, if_false: int) -> bytes:
    return _instruction(test, value, if_true, if_false)


def _return(action: int) -> bytes:
    return _instruction(_RETURN, action)


def _prctl(option: int, value: int) -> None:
    _checked(_libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
