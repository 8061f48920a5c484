"""Which models are asked, at whose API, and with which key.

Told by the supervisor as `[PROVIDER:]MODEL`, several with commas (`core.text.providers` there).
Every key is a placeholder that egress replaces; requests to AWS that have no key are signed with a
placeholder's, and egress signs them anew.
"""

import hashlib
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from agent_image.reviewer.anthropic_model import AnthropicModel
from agent_image.reviewer.model import Block, Model, ModelError, Reply, Request
from agent_image.reviewer.openai_model import OpenAIModel

if TYPE_CHECKING:
    import httpx2

Provider = Literal["anthropic", "aws", "bedrock", "openai"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
# The current Sonnet; `GATEHOUSE_REVIEW_MODEL` names another.
DEFAULT_MODEL_ID = "claude-sonnet-5-5"
_KEYS: dict[Provider, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "aws": "ANTHROPIC_AWS_API_KEY",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
    "openai": "OPENAI_API_KEY",
}
_URLS: dict[Provider, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "aws": "ANTHROPIC_AWS_BASE_URL",
    "bedrock": "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}
_SIGNING: dict[Provider, str] = {
    "aws": "GATEHOUSE_AWS_KEYS_AWS",
    "bedrock": "GATEHOUSE_AWS_KEYS_BEDROCK",
}
_OTHER_KEYS = ("CODEX_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
# What AWS calls these services in a signature.
_SERVICES: dict[Provider, str] = {"aws": "aws-external-anthropic", "bedrock": "bedrock-mantle"}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is asked: its key's placeholder, empty where requests are signed with
    `signing`, the placeholder of AWS's keys. `url` is empty for the provider's own."""

    provider: Provider
    name: str
    key: str = ""
    signing: str = ""
    url: str = ""
    region: str = ""
    workspace: str = ""


def read_models(environ: MutableMapping[str, str]) -> tuple[Asked, ...]:
    """Return the models that are asked, the first first, and take every key out of `environ`; empty
    where there is no key for the first. Raise `ValueError`."""
    keys = {
        name: environ.pop(name, "") for name in (*_KEYS.values(), *_SIGNING.values(), *_OTHER_KEYS)
    }
    named = environ.get("GATEHOUSE_REVIEW_MODEL", "") or DEFAULT_MODEL_ID
    found = [_asked(one.strip(), keys, environ) for one in named.split(",")]
    if found[0].key or found[0].signing:
        for one in found:
            if not one.key and not one.signing:
                raise ValueError(f"there is no key for the model `{one.provider}:{one.name}`")
        return tuple(found)
    return ()


def _asked(text: str, keys: dict[str, str], environ: MutableMapping[str, str]) -> Asked:
    before, colon, rest = text.partition(":")
    provider: Provider = next((one for one in PROVIDERS if colon and one == before), "anthropic")
    return Asked(
        provider=provider,
        name=rest if colon and provider == before else text,
        key=keys[_KEYS[provider]],
        signing=keys[_SIGNING[provider]] if provider in _SIGNING else "",
        url=environ.get(_URLS[provider], ""),
        region=environ.get("AWS_REGION", ""),
        workspace=environ.get("ANTHROPIC_AWS_WORKSPACE_ID", ""),
    )


def model_of(
    asked: tuple[Asked, ...],
    *,
    retries: int,
    reasoning: str = "",
    temperature: float | None = None,
) -> Model:
    """Return what asks these models."""

    def make(one: Asked) -> Model:
        if one.provider == "openai":
            return OpenAIModel(
                one.name,
                one.key,
                one.url or None,
                retries=retries,
                reasoning=reasoning,
                temperature=temperature,
            )
        return AnthropicModel(
            one.name,
            one.key,
            one.url or None,
            retries=retries,
            reasoning=reasoning,
            temperature=temperature,
            key_header="authorization" if one.provider == "bedrock" else "x-api-key",
            headers={"anthropic-workspace-id": one.workspace} if one.provider == "aws" else {},
            sign=None if one.key else _signer(one),
        )

    return make(asked[0]) if len(asked) == 1 else Failover(asked, make)


class Failover:
    """A `Model` that asks the next of several where one is away, and stays there."""

    def __init__(self, asked: tuple[Asked, ...], make: Callable[[Asked], Model]) -> None:
        self._asked = list(asked)
        self._make = make
        self._model = make(self._asked.pop(0))
        # So many messages of the conversation were another model's.
        self._foreign = 0

    @property
    def name(self) -> str:
        """Return the name of the model that is asked now."""
        return self._model.name

    def reply(self, request: Request, say: Callable[[str], None]) -> Reply:
        """Return the next turn of the first model that is there. Raise `ModelError`."""
        while True:
            try:
                return self._model.reply(self._own(request), say)
            except ModelError as error:
                if not error.is_away or not self._asked:
                    raise
                following = self._asked.pop(0)
                say(f"{error}; `{following.provider}:{following.name}` is asked instead")
                self._model = self._make(following)
                self._foreign = len(request.messages)

    def _own(self, request: Request) -> Request:
        """Return the request without the thoughts of another model, which this one can't read."""
        if not self._foreign:
            return request
        messages = [
            {**one, "content": _spoken(one["content"])} if at < self._foreign else one
            for at, one in enumerate(request.messages)
        ]
        return msgspec.structs.replace(request, messages=messages)


def _spoken(content: list[Block]) -> list[Block]:
    said = [one for one in content if one["type"] in ("text", "tool_use", "tool_result")]
    return said or [{"type": "text", "text": "(no words)"}]


def _signer(asked: Asked) -> Callable[["httpx2.Request"], None]:
    """Return what signs a request with the placeholder's key, whose signature is worth nothing."""

    def sign(request: "httpx2.Request") -> None:
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = f"{now[:8]}/{asked.region}/{_SERVICES[asked.provider]}/aws4_request"
        signed: dict[str, Any] = {
            "x-amz-date": now,
            "x-amz-content-sha256": hashlib.sha256(request.read()).hexdigest(),
            "authorization": (
                f"AWS4-HMAC-SHA256 Credential={asked.signing}/{scope},"
                f" SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={'0' * 64}"
            ),
        }
        request.headers.update(signed)

    return sign
