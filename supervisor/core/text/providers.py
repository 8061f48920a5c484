"""The providers that a reader can ask, and how a setting names their models.

`MODEL` is one of Anthropic's own API, `PROVIDER:MODEL` one of another. Several stand between
commas, each to be asked where those before it can't be. AWS serves Anthropic's models with the same
API (https://platform.claude.com/docs/en/build-with-claude/claude-in-amazon-bedrock), for keys of
its own or signed requests.
"""

import re
from typing import Literal, NamedTuple, get_args

from supervisor.errors import UserError

Provider = Literal["anthropic", "aws", "bedrock", "openai"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
# Where Anthropic's models are served by AWS: in its own service, and in Bedrock.
AT_AWS: tuple[Provider, ...] = ("aws", "bedrock")
MOST_MODELS = 4
# AWS's regions are in names of hosts.
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-[0-9]{1,2}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
# The variable with another address of a provider's API, by the names of its own clients.
URL_VARIABLES: dict[Provider, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "aws": "ANTHROPIC_AWS_BASE_URL",
    "bedrock": "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}


class NamedModel(NamedTuple):
    """A model, and who serves it. `name` is empty for the reader's default."""

    provider: Provider = "anthropic"
    name: str = ""

    def __str__(self) -> str:
        return self.name if self.provider == "anthropic" else f"{self.provider}:{self.name}"


def read_models(text: str, setting: str) -> tuple[NamedModel, ...]:
    """Return the models that a setting names, the first to be asked first; empty for none. Raise
    `UserError`."""
    found = tuple(_model(one.strip(), setting) for one in text.split(",") if one.strip())
    if len(found) > MOST_MODELS:
        raise UserError(
            f"{setting} names {len(found)} models", f"name at most {MOST_MODELS}, the best first"
        )
    return found


def _model(text: str, setting: str) -> NamedModel:
    before, colon, rest = text.partition(":")
    # Names of Bedrock's models have colons of their own.
    provider = next((one for one in PROVIDERS if colon and one == before), None)
    name = rest if provider else text
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{setting}: `{text[:100]}` is no model",
            f"write MODEL, or PROVIDER:MODEL with one of {', '.join(PROVIDERS)}",
        )
    return NamedModel(provider or "anthropic", name)


def url_in_region(provider: Provider, region: str) -> str:
    """Return the address of a provider's API; of those of AWS, in a region. Raise `UserError`
    without one."""
    if provider == "anthropic":
        return "https://api.anthropic.com"
    if provider == "openai":
        return "https://api.openai.com/v1"
    if not _REGION.fullmatch(region):
        raise UserError(
            f"AWS_REGION is {f'`{region}`' if region else 'not set'}, and `{provider}` needs one",
            "set it, like us-east-1",
        )
    if provider == "aws":
        return f"https://aws-external-anthropic.{region}.api.aws"
    return f"https://bedrock-mantle.{region}.api.aws/anthropic"
