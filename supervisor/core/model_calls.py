"""Which requests call a model, and what such a request says of its own size.

It decides by path and shape, whatever the host: Anthropic's Messages, OpenAI's chat completions and responses, Bedrock's invoke and
converse, and whoever speaks the same (OpenRouter, gateways). It is apart from `usage.py`, which reads what comes back. It must never take a
body's word for less than the body is: what it can't read is as large as a call can be.
"""

import json
import re
from typing import Any, Literal
from urllib.parse import unquote

import msgspec

Api = Literal["messages", "chat", "responses", "invoke", "converse", "unmetered"]

# Their traffic is always looked into.
MODEL_HOSTS = frozenset(
    {"api.anthropic.com", "api.openai.com", "eu.api.openai.com", "us.api.openai.com", "openrouter.ai"}
)
_BEDROCK_HOST = re.compile(r"bedrock-(?:runtime|mantle)(?:-fips)?\.[a-z0-9-]+\.(?:amazonaws\.com(?:\.cn)?|api\.aws)")
# The ends of paths, after decoding; a gateway's own prefix may stand before.
_PATHS: tuple[tuple[re.Pattern[str], Api], ...] = (
    (re.compile(r"/model/[^/]+(?:/[^/]+)*/converse(?:-stream)?$"), "converse"),
    (re.compile(r"/model/[^/]+(?:/[^/]+)*/invoke(?:-with-response-stream)?$"), "invoke"),
    (re.compile(r"/v1/messages$"), "messages"),
    (re.compile(r":(?:stream)?rawpredict$"), "messages"),
    (re.compile(r"/chat/completions$"), "chat"),
    (re.compile(r"/v\d+/(?:completions|embeddings)$"), "chat"),
    (re.compile(r"/responses$"), "responses"),
)
_BEDROCK_MODEL = re.compile(r"/model/(.+)/(?:converse|invoke)", re.IGNORECASE)
_VERTEX_MODEL = re.compile(r"/models/([^/:]+):", re.IGNORECASE)
# What is offered over a WebSocket, too: OpenAI's responses, which Codex asks for so before it asks with plain requests.
_BY_WEBSOCKET = re.compile(r"/responses$")
# At a host of models: what costs nothing. All else there that isn't read is `unmetered`: batches, pictures, sound, sessions.
_FREE = re.compile(r"/(?:count_tokens|input_tokens|count-tokens|moderations|cancel|files|uploads(?:/.*)?)$")
_COSTS = re.compile(r"/v\d+(?:beta\d*)?/|/model/|/model-invocation-job$|/async-invoke$")
# Parts of a body that stand for input that isn't in it, by a key of the body itself and by the `type` of a part.
_BEYOND_KEYS = frozenset(
    {"previous_response_id", "conversation", "container", "mcp_servers", "plugins", "context_management"}
)
_BEYOND_TYPES = frozenset({"url", "file", "image_url", "input_image", "input_file", "item_reference", "mcp"})
_SERVER_TOOLS = (
    "web_search",
    "web_fetch",
    "code_execution",
    "code_interpreter",
    "file_search",
    "image_generation",
    "tool_search",
)
_FAST = frozenset({"fast", "priority"})
MOST_CHOICES = 128
MOST_NAME_CHARS = 200
# Of a body with more of these than the longest context has words for, nothing is read: a value takes a hundred times its bytes, and everybody's time.
MOST_MARKS = 500_000
_MARKS = (b"{", b"[", b",", b":")


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request says of its cost before it goes out.

    `max_output_tokens` None: it says none. `beyond_body`: input that isn't in the body counts too. `writes_cache`, `writes_long_cache`: input may
    be billed as a write to the provider's cache. `fast`, `regional`: it asks for a tier that costs more. `shows_output`: the model was told not to
    think, so that all that is billed as output is seen.
    """

    api: Api
    model: str = ""
    body_bytes: int = 0
    max_output_tokens: int | None = None
    choices: int = 1
    beyond_body: bool = False
    writes_cache: bool = True
    writes_long_cache: bool = True
    fast: bool = False
    regional: bool = False
    shows_output: bool = False


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of tokens; each is in one kind only. `searches` are web searches that the provider made, billed each."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    searches: int = 0

    @property
    def prompt(self) -> int:
        """Everything that went in."""
        return self.input + self.cache_read + self.cache_write + self.cache_write_long

    @property
    def total(self) -> int:
        """Everything that went in and out."""
        return self.prompt + self.output


def is_model_host(host: str, others: frozenset[str] = frozenset()) -> bool:
    """Whether a host is known to serve models: the public APIs, and those of `others` (a gateway's)."""
    return host in MODEL_HOSTS or host in others or _BEDROCK_HOST.fullmatch(host) is not None


def api_of(
    method: str, path: str, *, is_upgrade: bool = False, at_model_host: bool = False, at_gateway: bool = False
) -> Api | None:
    """The API that a request by its head may speak; None for one that calls no model. `path` may have a query.

    Of an upgrade to a WebSocket it is the one that the same path has for plain requests, or `unmetered`.
    `at_gateway`: at a model host that isn't a public one. Nobody knows which of its paths lead to a model: all may but the free ones.
    """
    plain = _plain(path)
    if is_upgrade and _BY_WEBSOCKET.search(plain):
        return "responses"
    if is_upgrade:
        return "unmetered" if at_gateway or (at_model_host and _COSTS.search(plain)) else None
    if method not in ("POST", "PUT"):
        return None
    for pattern, api in _PATHS:
        if pattern.search(plain):
            return api
    may_cost = at_gateway or (at_model_host and _COSTS.search(plain) is not None)
    return "unmetered" if may_cost and not _FREE.search(plain) else None


def _plain(path: str) -> str:
    """A path as a lenient server may read it: decoded, in lower case, without empty and dot segments."""
    decoded = unquote(unquote(path.partition("?")[0].partition("#")[0])).lower().replace("\\", "/")
    kept: list[str] = []
    for segment in decoded.split("/"):
        name = segment.partition(";")[0]
        if name == "..":
            del kept[-1:]
        elif name not in ("", "."):
            kept.append(name)
    return "/" + "/".join(kept)


class _Seen:
    """What a body holds anywhere: the types of its parts, and whether a key stood twice in one object."""

    def __init__(self) -> None:
        self.types: set[str] = set()
        self.is_doubled = False

    def look(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        self.is_doubled = self.is_doubled or len(made) != len(pairs)
        kind = made.get("type")
        if isinstance(kind, str):
            self.types.add(kind)
        return made


def read_call(
    api: Api, path: str, body: bytes, *, is_encoded: bool = False, at_model_host: bool = True
) -> ModelCall | None:
    """The call that a request makes; None where its body is no model's (some other site uses the same path).

    A body that is encoded, can't be read, or says a key twice (two readers may differ then) is taken for the largest there is.
    So is one of too many values, at any host: a few packed bytes may stand for millions.
    """
    if not is_encoded and sum(map(body.count, _MARKS)) > MOST_MARKS:
        return ModelCall(api=api, body_bytes=len(body), beyond_body=True)
    seen = _Seen()
    root: Any = None
    if not is_encoded:
        try:
            root = json.loads(body, object_pairs_hook=seen.look)
        except (ValueError, RecursionError):
            root = None
    if not isinstance(root, dict):
        return ModelCall(api=api, body_bytes=len(body), beyond_body=True) if at_model_host else None
    model = root.get("model") if api not in ("invoke", "converse") else None
    named = model if isinstance(model, str) else _model_in(path)
    if not at_model_host and not (named and _is_shaped(api, root)):
        return None
    text = named[:MOST_NAME_CHARS]
    if seen.is_doubled:
        return ModelCall(api=api, model="", body_bytes=len(body), beyond_body=True)
    config = root.get("inferenceConfig") if api == "converse" else None
    limits = config if isinstance(config, dict) else root
    choices = root.get("n", 1)
    return ModelCall(
        api=api,
        model=text,
        body_bytes=len(body),
        max_output_tokens=_limit(limits),
        choices=min(max(choices, 1), MOST_CHOICES) if isinstance(choices, int) else MOST_CHOICES,
        beyond_body=_reaches_beyond(root, seen.types),
        # OpenAI's newer models write their cache unasked.
        writes_cache=api in ("chat", "responses") or b"cache" in body,
        writes_long_cache=api in ("chat", "responses") or b"1h" in body,
        fast=_says(root, "speed", _FAST) or _says(root, "service_tier", _FAST),
        regional=root.get("inference_geo") not in (None, "global"),
        shows_output=_is_told_not_to_think(root),
    )


def _is_shaped(api: Api, root: dict[str, Any]) -> bool:
    keys = {"messages": ("messages",), "chat": ("messages", "prompt", "input"), "responses": ("input", "prompt")}.get(
        api
    )
    return keys is None or any(key in root for key in keys)


def _is_told_not_to_think(root: dict[str, Any]) -> bool:
    thinking = root.get("thinking")
    return (isinstance(thinking, dict) and thinking.get("type") == "disabled") or root.get("reasoning_effort") == "none"


def _model_in(path: str) -> str:
    """The model that a path names: Bedrock's id or profile, Vertex's name."""
    decoded = unquote(path.partition("?")[0])
    found = _BEDROCK_MODEL.search(decoded) or _VERTEX_MODEL.search(decoded)
    return found[1] if found else ""


def _says(root: dict[str, Any], key: str, words: frozenset[str]) -> bool:
    value = root.get(key)
    return isinstance(value, str) and value in words


def _limit(root: dict[str, Any]) -> int | None:
    """The least generous reading of a body's own limit: the largest that it names."""
    named = [root.get(key) for key in ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxTokens")]
    found = [number for number in named if isinstance(number, int) and not isinstance(number, bool) and number > 0]
    return max(found, default=None)


def _reaches_beyond(root: dict[str, Any], types: set[str]) -> bool:
    return (
        any(root.get(key) for key in _BEYOND_KEYS)
        or isinstance(root.get("prompt"), dict)
        or not types.isdisjoint(_BEYOND_TYPES)
        or any(kind.startswith(_SERVER_TOOLS) for kind in types)
        or "s3Location" in types
    )
