"""Read the hosts of model APIs that the settings name."""

import re
from urllib.parse import urlsplit

from supervisor.core.text.hosts import EVERY, canonical_host
from supervisor.errors import UserError
from supervisor.settings import Settings

# An `@` before the path, also without a scheme, or with one slash too few, which some programs
# mend.
_WITH_USER = re.compile(r"[^/\\?#]*[/\\]*[^/\\?#]*@")


def model_hosts_of(settings: Settings) -> tuple[str, ...]:
    """Return the host of another address of the Messages API, without its port, and those that are
    named."""
    host = _host_of_base(settings.anthropic_base_url) if settings.anthropic_base_url else None
    named = [_model_host(one.strip()) for one in settings.model_hosts.split(",") if one.strip()]
    return (*([host] if host else []), *named)


def _host_of_base(url: str) -> str | None:
    """INVARIANT: the sandbox is told the address, so that there is no secret in it. Nor does an
    error show it."""
    if _WITH_USER.match(url):
        raise UserError(
            "ANTHROPIC_BASE_URL has a user or a password in it, which the sandbox would see",
            "leave them out, and give the key as ANTHROPIC_API_KEY",
        )
    try:
        return urlsplit(url).hostname
    except ValueError:
        raise UserError("ANTHROPIC_BASE_URL is no address", "give `https://host`") from None


def _model_host(text: str) -> str:
    try:
        name = text.removeprefix(EVERY)
        return canonical_host(name) if name == text else EVERY + canonical_host(name)
    except ValueError:
        raise UserError(
            f"GATEHOUSE_MODEL_HOSTS: `{text}` is no host",
            "write names without port and path, with commas between",
        ) from None
