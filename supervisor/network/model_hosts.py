"""The hosts of model APIs that the settings name, and their addresses."""

import asyncio
import re
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from supervisor.core.text.hosts import (
    EVERY,
    LIFTABLE,
    address_class,
    as_address,
    canonical_host,
)
from supervisor.core.text.providers import URL_VARIABLES, Provider
from supervisor.errors import UserError
from supervisor.settings import Settings

# An `@` before the path, also without a scheme, or with one slash too few, which some programs
# correct.
_WITH_USER = re.compile(r"[^/\\?#]*[/\\]*[^/\\?#]*@")


def model_hosts_of(settings: Settings) -> tuple[str, ...]:
    """Return the hosts of configured addresses of the Messages API, without their ports, and the
    hosts that are named."""
    hosts = {
        provider: _host_of_base(URL_VARIABLES[provider], url)
        for provider, url in settings.model_urls.items()
    }
    hosts.pop("openai", None)  # its calls are known by their paths
    named = [_model_host(one.strip()) for one in settings.model_hosts.split(",") if one.strip()]
    return (*(one for one in hosts.values() if one), *named)


def check_is_elsewhere(url: str, provider: Provider) -> None:
    """Raise `UserError` where a model's server listens on this machine's loopback: a sandbox has
    its own, and its programs would go there past egress."""
    host = urlsplit(url).hostname or ""
    address = as_address(host) if host else None
    if host == "localhost" or (address is not None and address.is_loopback):
        raise UserError(
            f"{URL_VARIABLES[provider]} `{url}` is this machine's loopback, and the sandbox has"
            " one of its own",
            "name this machine by another name or address, and, but for `up --reviews`, allow that"
            " in the policy",
        )


async def rules_for_addresses(url: str, names: Mapping[str, tuple[str, ...]] | None) -> list[str]:
    """Return the rules that name each private address of a model's server. The operator named the
    server, and there is no reader's policy that could name its addresses. `names` stands in for
    DNS."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (80 if parts.scheme == "http" else 443)
    found = [as_address(one) for one in await _addresses(host, names)]
    return [
        f"network([{one}]:{port})" if one.version == 6 else f"network({one}:{port})"
        for one in found
        if one is not None and address_class(one) in LIFTABLE
    ]


async def _addresses(host: str, names: Mapping[str, tuple[str, ...]] | None) -> list[str]:
    if names is not None:
        return list(names.get(host, ()))
    try:
        found = await asyncio.to_thread(socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the reader is told that there is no such name
        return []
    return sorted({str(address[0]) for *_, address in found})


def _host_of_base(variable: str, url: str) -> str | None:
    """INVARIANT: the sandbox is told this address, so it contains no secret, and neither does an
    error."""
    if _WITH_USER.match(url):
        raise UserError(
            f"{variable} has a user or a password in it, which the sandbox would see",
            "leave them out, and give the key as a setting of its own, docs/settings.md",
        )
    try:
        return urlsplit(url).hostname
    except ValueError:
        raise UserError(f"{variable} is no address", "give `https://host`") from None


def _model_host(text: str) -> str:
    try:
        name = text.removeprefix(EVERY)
        return canonical_host(name) if name == text else EVERY + canonical_host(name)
    except ValueError:
        raise UserError(
            f"GATEHOUSE_MODEL_HOSTS: `{text}` is no host",
            "write names without port and path, with commas between",
        ) from None
