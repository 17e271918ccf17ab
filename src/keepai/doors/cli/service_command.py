"""`keep service`: the folder here as a service of systemd, locked in as far as a host and its workers allow.

Three things a unit must leave to them. WebAssembly is compiled to machine code, so `MemoryDenyWriteExecute` is not set.
A worker goes into an empty user, net, ipc and uts namespace of its own. And it locks itself in with Landlock and
seccomp, whose system calls are not in `@system-service`.
"""

from __future__ import annotations

import getpass
import pwd
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ...config import Settings
from ...model.errors import ConfigError, NotFound, Refused
from ..control import socket_path
from .command_session import CommandSession, with_json, with_session
from .serve import MCP_OPTION, PROBES_OPTION
from .text import echo, echo_json

SYSTEM_UNITS = Path("/etc/systemd/system")
#: It is there while systemd runs the machine.
BOOTED = Path("/run/systemd/system")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - a service has its own
_SYSTEMCTL_S = 60

_UNIT = """\
[Unit]
Description=Keep in {folder}
After=network-online.target
{wants}
[Service]
WorkingDirectory={folder}
ExecStart={command}
# Passwords and passphrases, such as KEEP_PASSPHRASE=…; the file is needed only if there are any.
EnvironmentFile=-{folder}/keep.env
Restart=on-failure
RestartSec=10
TimeoutStopSec=10
LimitNOFILE=4096
UMask=0077
{account}
# What it may write to. A program that a connector or a channel starts has the same limits.
ProtectSystem=strict
ProtectHome=read-only
{writable}
CacheDirectory={name}
CacheDirectoryMode=0700
Environment=XDG_CACHE_HOME=%C/{name}
PrivateTmp={private_tmp}

# What it may do. The sandbox needs namespaces of its own, Landlock, seccomp and code that is compiled here.
NoNewPrivileges=yes
RestrictNamespaces=user net ipc uts
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service landlock_create_ruleset landlock_restrict_self seccomp
SystemCallErrorNumber=EPERM

[Install]
WantedBy={target}
"""


@dataclass(frozen=True)
class SystemdUnit:
    """A unit of systemd for the folder here."""

    name: str
    file: Path
    text: str
    system: bool
    folder: Path

    def systemctl(self, *words: str) -> None:
        """Have systemd do something; what it says of a failure is the error."""
        command = ["systemctl", *([] if self.system else ["--user"]), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SYSTEMCTL_S,
                                  check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refused(f"`{' '.join(command)}` could not be run: {error}.") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()[:1] or [f"exit code {done.returncode}"]
            raise Refused(f"`{' '.join(command)}` failed: {said[0]}")


@click.group()
def service() -> None:
    """Run the folder here as a service of systemd."""


def _with_unit(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the unit that its options describe."""

    @click.option("--system", is_flag=True, help="A service of the machine; without it, one of your own account.")
    @click.option("--user", "account", metavar="NAME", help="The account that a service of the machine runs as.")
    @click.option("--page", is_flag=True, help="Show the page as well, as `keep serve --page` does.")
    @PROBES_OPTION
    @MCP_OPTION
    @with_json
    @with_session
    @wraps(command)
    def run(
        session: CommandSession, system: bool, account: str | None, page: bool, probes: tuple[str, int] | None,
        mcp: tuple[str, int] | None, as_json: bool,
    ) -> None:
        if account is not None and not system:
            raise click.UsageError("--user is about a service of the machine. Add --system.")
        ports = {"--probes": probes, "--mcp": mcp}
        served = ["--page"] * page + [f"{option}=[{place[0]}]:{place[1]}" if ":" in place[0] else
                                      f"{option}={place[0]}:{place[1]}" for option, place in ports.items() if place]
        settings = session.settings(connectors=True)
        command(unit_of(settings, served, _account(account) if system else None), as_json)

    return run


def _account(name: str | None) -> str:
    name = name or getpass.getuser()
    if name == "root":
        raise ConfigError("Keep must not run as root. Name an account of its own: --user keep")
    try:
        pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"There is no account {name!r} here. Make one: useradd --system {name}") from None
    return name


def unit_of(settings: Settings, served: Sequence[str], account: str | None) -> SystemdUnit:
    """The unit for the folder of keep.toml; with an account, a unit of the machine."""
    if settings.file is None:
        raise NotFound("There is no keep.toml here, so there is nothing to serve. `keep init FOLDER` makes a folder.")
    folder = settings.file.resolve().parent
    _check_folder(folder, account)
    slug = re.sub(r"[^a-z0-9-]+", "-", folder.name.lower()).strip("-")
    name = slug if slug.startswith("keep") else f"keep-{slug}"
    ledger = settings.ledger
    beside = isinstance(ledger, Path) and socket_path(ledger).parent == ledger.resolve().parent
    writable = _written(settings, folder)
    if not beside:  # then the host's socket is in a folder that commands must see too
        writable.append("/tmp" if account else "%t")  # noqa: S108
    text = _UNIT.format(
        folder=_plain_path(folder), command=" ".join([*map(_quoted, _keep()), "serve", *served]), name=name,
        wants="Wants=network-online.target\n" if account else "",
        account=f"User={account}\nCapabilityBoundingSet=\n" if account else "",
        writable="\n".join(f"ReadWritePaths={each}" for each in writable), private_tmp="yes" if beside else "no",
        target="multi-user.target" if account else "default.target")
    place = SYSTEM_UNITS if account else Path.home() / ".config/systemd/user"
    return SystemdUnit(f"{name}.service", place / f"{name}.service", text, account is not None, folder)


def _check_folder(folder: Path, account: str | None) -> None:
    if any(folder.is_relative_to(each) for each in _TEMPORARY):
        raise ConfigError(f"{folder} is a place for temporary files, which a service does not see. Move the folder.")
    owner = folder.stat().st_uid
    if account is not None and owner != pwd.getpwnam(account).pw_uid:
        raise ConfigError(f"{folder} does not belong to {account}, so its host could not write there. "
                          f"Say: chown -R {account} {folder}")


def _written(settings: Settings, folder: Path) -> list[str]:
    """The folders that a host writes to: its own, and what its ledger and its connectors have elsewhere."""
    assert settings.file is not None
    found = [folder, *([settings.ledger.resolve().parent] if isinstance(settings.ledger, Path) else [])]
    for table in tomllib.loads(settings.file.read_text("utf-8")).get("connectors", {}).values():
        if "path" in table:
            path = (folder / Path(table["path"]).expanduser()).resolve()
            found.append(path if path.is_dir() else path.parent)
    outside = {each for each in found if not each.is_relative_to(folder)}
    return [_quoted(each) for each in [folder, *sorted(outside)]]


def _keep() -> list[str]:
    """The command that runs now, by its whole path."""
    beside = Path(sys.executable).with_name("keep")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "keepai.doors.cli.main"]


def _quoted(path: str | Path) -> str:
    """A path as a word of a unit: in quotes if it has a blank."""
    text = _plain_path(path)
    return f'"{text}"' if " " in text else text


def _plain_path(path: str | Path) -> str:
    """A path as the whole value of a setting of a unit."""
    text = str(path)
    if re.search(r"""[^\S ]|["'\\$;]|^ | $""", text):
        raise ConfigError(f"systemd cannot be told of {text!r}: it has a quote or a sign that means something there. "
                          "Use a folder with a simpler name.")
    return text.replace("%", "%%")


@service.command()
@_with_unit
def show(unit: SystemdUnit, as_json: bool) -> None:
    """Print the unit that `install` would write, and change nothing."""
    if as_json:
        echo_json(_told(unit))
    else:
        echo(f"# {unit.file}", unit.text.rstrip())


@service.command()
@_with_unit
def install(unit: SystemdUnit, as_json: bool) -> None:
    """Write the unit, and have systemd start it now and with the machine.

    Without --system it is a service of your own account: `loginctl enable-linger` has it run while you are not signed
    in. Installing again replaces the unit and starts the host anew.
    """
    _check_systemd(unit)
    try:
        unit.file.parent.mkdir(parents=True, exist_ok=True)
        unit.file.write_text(unit.text, "utf-8")
    except OSError as error:
        raise Refused(f"{unit.file} cannot be written: {error.strerror}. Become root for --system.") from None
    for words in (("daemon-reload",), ("enable", unit.name), ("restart", unit.name)):
        unit.systemctl(*words)
    if as_json:
        echo_json(_told(unit))
        return
    user = "" if unit.system else "--user "
    echo(f"{unit.name} is installed and runs: {unit.file}", "Go on with:",
         f"  systemctl {user}status {unit.name}",
         f"  journalctl {user}--unit {unit.name} --follow",
         *([] if unit.system else ["  loginctl enable-linger      # so that it runs while you are not signed in"]))


@service.command()
@_with_unit
def uninstall(unit: SystemdUnit, as_json: bool) -> None:
    """Have systemd end the service, and remove its unit. The folder and its ledger stay as they are."""
    if not unit.file.exists():
        raise NotFound(f"There is no {unit.file}, so nothing is installed for this folder.")
    if BOOTED.is_dir():
        unit.systemctl("disable", "--now", unit.name)
    try:
        unit.file.unlink()
    except OSError as error:
        raise Refused(f"{unit.file} cannot be removed: {error.strerror}.") from None
    if BOOTED.is_dir():
        unit.systemctl("daemon-reload")
    if as_json:
        echo_json(_told(unit))
    else:
        echo(f"{unit.name} has ended and is removed. The folder and its ledger are as they were.")


def _check_systemd(unit: SystemdUnit) -> None:
    if BOOTED.is_dir() and shutil.which("systemctl"):
        return
    command = next(line for line in unit.text.splitlines() if line.startswith("ExecStart="))
    raise Refused(
        f"systemd does not run this machine, so nothing was installed. Have what runs services here start this in "
        f"{unit.folder}, and start it again when it ends:\n  {command.removeprefix('ExecStart=')}\n"
        "In a container, let it be the container's command; compose.yaml of the source shows how.")


def _told(unit: SystemdUnit) -> dict[str, Any]:
    return {"name": unit.name, "file": str(unit.file), "installed": unit.file.exists(), "unit": unit.text}
