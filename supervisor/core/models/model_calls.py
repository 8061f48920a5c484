"""Recognise requests that call a model, by their path.

The host doesn't matter: Anthropic's Messages, OpenAI's chat completions and responses, Bedrock's
invoke and converse, and every server with the same API (OpenRouter, gateways).
"""

import re
from typing import Literal, get_args
from urllib.parse import unquote

import msgspec

from supervisor.core.text.hosts import is_named

# Tiers of service by price, the cheapest first. The price of an `unknown` one isn't known here.
Tier = Literal["plain", "fast", "ultrafast", "unknown"]
TIERS: tuple[Tier, ...] = get_args(Tier)
# The words of Anthropic, OpenAI, OpenRouter and Bedrock: an answer names the tier that served the
# call, which may be another than it asked for.
_TIER_WORDS: dict[str, Tier] = {
    **dict.fromkeys(
        ("auto", "default", "standard", "standard_only", "flex", "scale", "batch"), "plain"
    ),
    **dict.fromkeys(("fast", "priority", "optimized"), "fast"),
    "ultrafast": "ultrafast",
}
Api = Literal["messages", "chat", "embeddings", "responses", "invoke", "converse", "unmetered"]

# Their traffic is always decrypted and inspected. A region's host stands before a vendor's own
# (`eu.api.openai.com`), and a network's own before that of Bedrock.
_VENDOR = re.compile(
    r"(?:[a-z0-9-]+\.)*(?:api\.anthropic\.com|api\.openai\.com|openrouter\.ai)"
    r"|aws-external-anthropic\.[a-z0-9-]+\.api\.aws"
)
_ANTHROPIC = "api.anthropic.com"
_OPENAI = "api.openai.com"
_OPENROUTER = "openrouter.ai"
_BEDROCK = re.compile(
    r"(?:[a-z0-9-]+\.)*bedrock(?:-[a-z-]+)?\.[a-z0-9-]+\.(?:(?:vpce\.)?amazonaws\.com(?:\.cn)?|api\.aws)"
)
_AZURE = re.compile(
    r"(?:[a-z0-9-]+\.)+(?:openai|cognitiveservices|services\.ai)\.azure\.(?:com|us|cn)"
)
# Endings of call paths, after decoding, with a part that must stand before; a gateway's own prefix
# may stand before that. INVARIANT: an unbounded part ends where its pattern may begin anew. An
# agent writes the path: read again from each of its segments, it takes seconds.
_ENDS: tuple[tuple[str, str, Api], ...] = (
    ("/model/", r"/converse(?:-stream)?", "converse"),
    ("/model/", r"/invoke(?:-with-response-stream)?", "invoke"),
    ("", r"/v1/messages", "messages"),
    ("", r":(?:stream)?rawpredict", "messages"),
    ("", r"/chat/completions", "chat"),
    ("", r"/v\d+/completions", "chat"),
    ("", r"/v\d+/embeddings", "embeddings"),
    # `compact` shortens a conversation, and reports its usage in the same way.
    ("", r"/responses(?:/compact)?", "responses"),
)
_PATHS = tuple((before, re.compile(end + "$"), api) for before, end, api in _ENDS)
# The same in any place of a path: a gateway may go by the path's beginning.
_PARTS = tuple((before, re.compile(end + "(?=/|$)"), api) for before, end, api in _ENDS)
# Parts of a once decoded path that servers read differently: parameters, dot segments, double
# encoding, or a query. No client needs them.
_ODD = re.compile(r"[;\\?#%]|/\.\.?(?:/|$)")
# APIs offered over a WebSocket, too: OpenAI's responses, which Codex tries before plain requests.
_BY_WEBSOCKET = re.compile(r"/responses$")
# Paths at a model host that cost nothing. Every other path there that isn't understood is
# `unmetered`: batches, pictures, sound, sessions.
_FREE = re.compile(r"/(?:count_tokens|input_tokens|count-tokens|moderations|cancel|files|uploads)$")
_FREE_WITHIN = "/uploads/"
_COSTS = re.compile(r"/v\d+(?:beta\d*)?/")
# Methods whose requests nearly always have no body: without a body they can't call a model. A
# gateway may turn any other method into a POST.
NO_BODY = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
MOST_NAME_CHARS = 200


class ModelCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cost of a request as far as it is known before it is sent.

    `max_output_tokens` None: it names no limit. `beyond_body`: input that isn't in the body counts
    too, up to `steps` times: a provider that runs tools by itself has the model read everything
    again after each. `writes_cache`, `writes_long_cache`: input may be billed as a write to the
    provider's cache; `asks_long_cache`: it asks for a cache that lasts an hour or longer. `tier` is
    the dearest that it asks for. `regional`: it is bound to a region, which costs more.
    `shows_output`: the model was told not to think, and prepares nothing unseen, so all billed
    output is seen. `pictures` are in the body: few bytes may be many tokens, and the
    `picture_bytes` among `body_bytes` are no words. `searches` is the maximum number that it may
    bill, with `previews` by the older tool, which may cost more. One of `others` may answer instead
    of `model` (`disputed`: under another's name), and `advisors` are asked in addition.
    `bills_more`: a provider's tool costs more than tokens, by a measure that the response doesn't
    show.
    """

    api: Api
    model: str = ""
    body_bytes: int = 0
    max_output_tokens: int | None = None
    choices: int = 1
    beyond_body: bool = False
    steps: int = 1
    writes_cache: bool = True
    writes_long_cache: bool = True
    asks_long_cache: bool = False
    tier: Tier = "plain"
    regional: bool = False
    shows_output: bool = False
    pictures: int = 0
    picture_bytes: int = 0
    searches: int = 0
    previews: bool = False
    bills_more: bool = False
    others: tuple[str, ...] = ()
    disputed: bool = False
    advisors: tuple[str, ...] = ()


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of tokens; each token is in one kind only. `searches` are web searches that the
    provider made; each is billed."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    searches: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            **{kind: getattr(self, kind) + getattr(other, kind) for kind in self.__struct_fields__}
        )

    @property
    def written(self) -> int:
        """Return the tokens written to the provider's cache, for any duration."""
        return self.cache_write + self.cache_write_long

    @property
    def prompt(self) -> int:
        """Return all input tokens."""
        return self.input + self.cache_read + self.written

    @property
    def total(self) -> int:
        """Return all input and output tokens."""
        return self.prompt + self.output


def dearest_tier(*said: object) -> Tier:
    """Return the dearest of the named tiers; a value that isn't a text names none."""
    named = [_TIER_WORDS.get(one, "unknown") for one in said if isinstance(one, str)]
    return max(named, key=TIERS.index, default="plain")


def is_model_host(host: str, others: frozenset[str] = frozenset()) -> bool:
    """Return whether a host is known to serve models: the public APIs, and those in `others` (a
    gateway's; `*.` means all names below)."""
    return (
        _VENDOR.fullmatch(host) is not None
        or is_bedrock(host)
        or any(is_named(host, one) for one in others)
    )


def is_openai(host: str) -> bool:
    """Return whether it is OpenAI's own host, of any region."""
    return host == _OPENAI or host.endswith(f".{_OPENAI}")


def is_anthropic(host: str) -> bool:
    """Return whether it is Anthropic's own host."""
    return host == _ANTHROPIC or host.endswith(f".{_ANTHROPIC}")


def is_bedrock(host: str) -> bool:
    """Return whether it is a host of Amazon Bedrock."""
    return _BEDROCK.fullmatch(host) is not None


def is_openrouter(host: str) -> bool:
    """Return whether it is OpenRouter's own host."""
    return host == _OPENROUTER or host.endswith(f".{_OPENROUTER}")


def says_what_answered(host: str) -> bool:
    """Return whether the model that a response names is the one that made it. Gateways may put the
    name there that the body asked for, whatever model they used."""
    return (
        _VENDOR.fullmatch(host) is not None
        or is_bedrock(host)
        or _AZURE.fullmatch(host) is not None
    )


def is_regional(host: str, path: str, model: str) -> bool:
    """Return whether a call's address binds it to a region, which costs more: at OpenAI by a
    region's host, at Bedrock by a profile other than the global one, at Vertex by its path.
    Sources: the three vendors' price pages."""
    if is_bedrock(host):
        return not model.rpartition("/")[2].startswith("global.")
    if host.endswith(f".{_OPENAI}"):
        return True
    return any("/locations/" in one and "/locations/global/" not in one for one in readings(path))


def api_of(
    method: str, path: str, host: str = "", *, is_upgrade: bool = False, at_model_host: bool = False
) -> Api | None:
    """Return the API that a request may use, judged by its head; None if it calls no model. `path`
    may have a query.

    An upgrade to a WebSocket has the API of the same path for plain requests, or is `unmetered`: a
    model host that accepts one uses it to talk with a model, whatever the path. At a model host
    that isn't a vendor's, any path except the free ones may lead to a model, or affect its cost. A
    path that another reader may take for another call, or for none, can't be priced: it is
    `unmetered` there.
    """
    if not is_upgrade and method in NO_BODY:
        return None
    read = readings(path)
    if is_upgrade and any(_BY_WEBSOCKET.search(one) for one in read):
        return "responses"
    if is_upgrade:
        return "unmetered" if at_model_host else None
    if at_model_host and _ODD.search(unquote(path.partition("?")[0])):
        return "unmetered"
    for before, end, api in _PATHS:
        if any((found := end.search(one)) and before in one[: found.start()] for one in read):
            is_one = all(_apis_in(one) <= {api} for one in read)
            return api if is_one or not at_model_host else "unmetered"
    may_cost = at_model_host and (
        _VENDOR.fullmatch(host) is None or any(_COSTS.search(one) for one in read)
    )
    return "unmetered" if may_cost and not all(_is_free(one) for one in read) else None


def _apis_in(reading: str) -> set[Api]:
    """Return the APIs that a path names anywhere in it."""
    found: set[Api] = set()
    for before, part, api in _PARTS:
        at = reading.find(before)
        if at >= 0 and part.search(reading, at + len(before)):
            found.add(api)
    return found


def _is_free(reading: str) -> bool:
    if _FREE.search(reading):
        return True
    _, within, rest = reading.rpartition(_FREE_WITHIN)
    # A line break at the very end changes nothing. With any other line break it is unknown which
    # part of the path is read.
    return bool(within) and "\n" not in rest[:-1]


def readings(path: str) -> set[str]:
    """Return a path as servers may read it: decoded once or twice, with or without a resulting
    query as part of it (gateways build new addresses from it)."""
    once = unquote(path.partition("?")[0].partition("#")[0])
    # Nearly every path has only one reading.
    parts = {
        part
        for decoded in {once, unquote(once)}
        for part in (decoded, re.split(r"[?#]", decoded)[0])
    }
    return {_plain(part) for part in parts}


def _plain(decoded: str) -> str:
    """Return a path as a lenient server may read it: in lower case, without empty and dot
    segments."""
    kept: list[str] = []
    for segment in decoded.lower().replace("\\", "/").split("/"):
        name = segment.partition(";")[0]
        if name == "..":
            del kept[-1:]
        elif name not in ("", "."):
            kept.append(name)
    return "/" + "/".join(kept)
