"""Read the values of named secrets: from files, the environment or commands.

It reads them at the supervisor's start and when their files change. It doesn't decide where they go
(`core.network.credentials`), and keeps them in memory only: it gives them to egress and the
redactor, never to a process's arguments or environment, a log line or an error. If a secret can't
be read, Gatehouse doesn't start.
"""

import errno
import os
import secrets
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from supervisor import settings as environment
from supervisor.base import plain_files
from supervisor.base.process import run
from supervisor.core.network.credentials import (
    Binding,
    ServerSecrets,
    authority,
    check_secret,
    credentials_of,
    environment_of,
    git_settings,
    parse_credentials,
)
from supervisor.core.network.egress_wire import MAX_MESSAGE_BYTES, Credential
from supervisor.core.secrets.redact import Redactor
from supervisor.core.text.urls import DEFAULT_PORTS
from supervisor.errors import UserError

COMMAND_S = 60.0
MOST_BYTES = 64 * 1024
# All of them reach egress in one packet, with the key of the review agent's model.
MOST_TOLD_BYTES = MAX_MESSAGE_BYTES - 16 * 1024
_HOST_OF = {
    "pip": ("pip", "config", "get", "global.index-url"),
    "npm": ("npm", "config", "get", "registry"),
}


class Named(NamedTuple):
    """A binding with its placeholder and its credentials."""

    binding: Binding
    placeholder: str
    credentials: tuple[Credential, ...]

    def __repr__(self) -> str:
        return f"Named({self.binding.name!r})"


class NamedSecrets:
    """The named secrets of one supervisor; none until they are loaded."""

    def __init__(self) -> None:
        self._named: list[Named] = []
        self._kept: frozenset[str] = frozenset()
        self._value_files: list[Path] = []
        self._placeholders: dict[str, str] = {}

    async def load(self, file: Path, folder: Path, redactor: Redactor) -> None:
        """Read the secrets that the file names; none where there is no file. `UserError` names the
        credential that can't be used.

        Loading again keeps each name's placeholder, which running sandboxes have. An error changes
        nothing.
        """
        found: list[Named] = []
        listed = bindings(file)
        self._value_files = [folder / one.where for one in listed if one.source == "file"]
        for binding in listed:
            value = check_secret(
                binding.name, await _value(binding, folder, file.parent), signs=binding.signs
            )
            for part in (value, *(value.split(":", 2) if binding.signs else ())):
                redactor.add(part)
            if binding.asks and not binding.hosts:
                binding = msgspec.structs.replace(binding, hosts=(await _host_of(binding),))
            git_user = next(
                (user for begins, user in binding.git_users if value.startswith(begins)),
                binding.git_user,
            )
            binding = msgspec.structs.replace(binding, git_user=git_user)
            placeholder = self._placeholders.setdefault(
                binding.name, f"gatehouse-placeholder-{binding.name}-{secrets.token_hex(12)}"
            )
            found.append(Named(binding, placeholder, credentials_of(binding, placeholder, value)))
        told_bytes = len(
            msgspec.json.encode([credential for one in found for credential in one.credentials])
        )
        if told_bytes > MOST_TOLD_BYTES:
            raise UserError(
                f"{file}: its credentials take {told_bytes:,} bytes with their hosts, methods and"
                f" paths, and egress is told {MOST_TOLD_BYTES:,} at most",
                "name fewer of them, or fewer hosts, methods and paths",
            )
        self._named = found

    @property
    def value_files(self) -> list[Path]:
        """Return the value files named at the last reading, even if not all of it could be used."""
        return self._value_files

    def keep_from_agents(self, names: frozenset[str]) -> None:
        """Give agents none of these credentials: they are an MCP server's alone. With one of them
        an agent could ask the same host itself, and rules on calls would be worth nothing."""
        self._kept = names

    @property
    def _of_agents(self) -> list[Named]:
        return [one for one in self._named if one.binding.name not in self._kept]

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """Return the credentials that egress adds for agents."""
        return tuple(credential for one in self._of_agents for credential in one.credentials)

    def of_server(self, names: Iterable[str]) -> ServerSecrets:
        """Return what an MCP server gets of these; `UserError` where there is no such name."""
        found: list[Named] = []
        for name in names:
            named = next((one for one in self._named if one.binding.name == name), None)
            if named is None:
                raise UserError(
                    f"there is no credential `{name[:64]}`", "write it into credentials.yaml"
                )
            found.append(named)
        variables: dict[str, str] = {}
        headers: dict[str, str] = {}
        for one in found:
            variables |= environment_of(one.binding, one.placeholder)
            header = one.binding.headers[0]
            headers[header] = f"{'Bearer ' * (header == 'authorization')}{one.placeholder}"
        credentials = tuple(credential for one in found for credential in one.credentials)
        return ServerSecrets(credentials, variables, headers)

    def login_for(self, url: str) -> tuple[str, str] | None:
        """Return user and password for the person's git at a remote; None where no secret is for
        its host. Over plain HTTP only for this machine.
        """
        try:
            parts = urlsplit(url)
            place = authority(parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme])
        except (ValueError, KeyError):
            return None
        if parts.scheme != "https" and not (parts.hostname or "").startswith("127."):
            return None
        for named in self._named:
            if place in named.binding.git_hosts and named.credentials:
                return named.binding.git_user, named.credentials[0].secret
        return None

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables for an agent's sandbox: placeholders only."""
        found: dict[str, str] = {}
        for one in self._of_agents:
            found |= environment_of(one.binding, one.placeholder)
        return found | git_settings({one.placeholder: one.binding for one in self._of_agents})


def bindings(file: Path) -> tuple[Binding, ...]:
    """Read the bindings. INVARIANT: nobody else says which command is run and where a credential
    goes."""
    text = plain_files.told_text(file, "where credentials go", "GATEHOUSE_CREDENTIALS")
    return () if text is None else parse_credentials(text, str(file))


async def _value(binding: Binding, folder: Path, told_in: Path) -> str:
    if binding.source == "env":
        found = environment.inherited(binding.where).get(binding.where)
        if not found:
            raise UserError(
                f"the credential `{binding.name}`: `{binding.where}` is not set",
                "set it, and start again",
            )
        return found
    if binding.source == "cmd":
        return await _of_command(binding, told_in)
    return _of_file(binding, folder / binding.where)


def _of_file(binding: Binding, path: Path) -> str:
    """Return the content of a file that nobody else can read."""
    try:
        descriptor = plain_files.opened(path, os.O_NOFOLLOW)
    except OSError as error:
        why = (
            "it is a symlink, which isn't followed"
            if error.errno == errno.ELOOP
            else error.strerror
        )
        raise UserError(
            f"the credential `{binding.name}`: {path}: {why}",
            f"write the secret into {path} itself",
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if facts.st_mode & 0o077 or facts.st_uid != os.geteuid():
            raise UserError(
                f"{path}: others can read it, or it belongs to somebody else", f"chmod 600 {path}"
            )
        return file.read(MOST_BYTES).decode("utf-8", "replace").strip()


async def _of_command(binding: Binding, told_in: Path) -> str:
    """INVARIANT: never run in the folder that Gatehouse is started in, which is often a
    workspace: its own settings of tools (`.npmrc`, `mise.toml`) would count."""
    words = shlex.split(binding.where)
    try:
        done = await run(
            words,
            env=environment.everything(),
            cwd=told_in,
            timeout_s=COMMAND_S,
            output_limit_bytes=MOST_BYTES,
        )
    except UserError as error:
        raise UserError(f"the credential `{binding.name}`: {error.message}", error.remedy) from None
    if done.timed_out:
        raise UserError(
            f"the credential `{binding.name}`: `{words[0]}` took more than {COMMAND_S:g} s",
            "run the command by hand and look: it must ask for nothing",
        )
    if not done.ok:
        # Not what it wrote: that may be half of a secret.
        raise UserError(
            f"the credential `{binding.name}`: `{words[0]}` failed",
            "run the command by hand and look",
        )
    return done.stdout.decode("utf-8", "replace").strip()


async def _host_of(binding: Binding) -> str:
    """Return the host that a package manager of this machine, not of the folder that Gatehouse is
    started in, is set up with: Gatehouse names none by itself."""
    command = _HOST_OF[binding.asks]
    remedy = "write `hosts:` in credentials.yaml, with the host that takes what is published"
    asks = f"the credential `{binding.name}`: `{' '.join(command)}`"
    try:
        done = await run(command, env=environment.everything(), cwd="/", timeout_s=COMMAND_S)
        index = urlsplit(done.stdout.decode("utf-8", "replace").strip() if done.ok else "")
        named = authority(index.hostname or "", index.port)
    except (UserError, ValueError):
        # Not what it said: that may have a password in it.
        raise UserError(f"{asks} names no host", remedy) from None
    if index.scheme != "https":
        raise UserError(
            f"{asks} names an address of `{index.scheme}`, and a credential goes out over https"
            " only",
            remedy,
        )
    return named
