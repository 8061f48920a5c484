"""Size and price that a model call's body states, before it is sent.

`model_calls` decides by the head alone; a body is an agent's word. It must never read less into the
body than the provider may: a body that it can't read, or that two readers may read differently,
counts as the largest and dearest call possible.
"""

import json
import re
from typing import Any, TypeIs
from urllib.parse import parse_qsl

from supervisor.core.models.call_models import (
    ELSEWHERE_KEYS,
    OTHER_MODELS,
    asks_elsewhere,
    key_of,
    models_named,
    name_of,
    others_named,
)
from supervisor.core.models.call_tools import (
    BILL_MORE_KEYS,
    COMPACTING_STEPS,
    MOST_LIMIT,
    advisors,
    always_search,
    bills_more,
    is_kept,
    previews,
    runs_elsewhere,
    searches,
    steps,
    text_of,
    tools_of,
)
from supervisor.core.models.model_calls import (
    Api,
    ModelCall,
    Tier,
    dearest_tier,
    is_openai,
    is_regional,
    says_what_answered,
)

# Parts of a body that stand for input that isn't in it, by a key of the body itself and by the
# `type` of a part.
_BEYOND_KEYS = frozenset(
    {"previous_response_id", "conversation", "container", "mcp_servers", "plugins"}
)
_BEYOND_TYPES = frozenset(
    {"url", "file", "input_file", "item_reference", "mcp", "video_url", "input_video", "audio_url"}
)
# Parts of Bedrock's Converse whose few bytes are many pages, pictures or sounds.
_LONG_PARTS = ("document", "video", "audio")
# Keys that have the provider change the conversation. These edits only leave out some of the body:
# Anthropic's page on context editing.
_EDITS_KEY = "context_management"
_CLEARING_EDITS = ("clear_tool_uses_20250919", "clear_thinking_20251015")
_SERVER_TOOLS = (
    "web_search",
    "web_fetch",
    "code_execution",
    "code_interpreter",
    "file_search",
    "image_generation",
    "tool_search",
)
# Charset in a Content-Type; charsets that mean what is read here; and those that do where all is
# ASCII (the default of Apache's client for Java).
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\s;,\"']*)")
_CHARSETS = {"utf-8", "utf8", "us-ascii", "ascii", ""}
_LIKE_ASCII = {"iso-8859-1", "latin1", "windows-1252"}
_FORM = "x-www-form-urlencoded"
MOST_FIELDS = 10_000
# Spellings of a cache lifetime below one hour.
_MINUTES = re.compile("[1-5]?[0-9]m")
# Headers by which Bedrock's invoke asks for what its converse asks for in the body.
_TIER_HEADERS = ("x-amzn-bedrock-service-tier", "x-amzn-bedrock-performanceconfig-latency")
# The keys by which each API limits the output. A key that an API doesn't read limits nothing.
_LIMITS: dict[Api, tuple[str, ...]] = {
    "messages": ("max_tokens",),
    "chat": ("max_tokens", "max_completion_tokens"),
    "responses": ("max_output_tokens",),
    "converse": ("maxTokens", "max_tokens"),
    "invoke": ("max_tokens",),
}
# The same under other vendors' names, without underscores and in any case: Bedrock's models, and
# gateways that pass on unknown keys, read these too. Sources: Bedrock's pages on the parameters of
# each maker's models, LiteLLM's on parameters of providers.
_MAKERS_LIMITS = frozenset(
    {"maxtokens", "maxgenlen", "maxtokencount", "maxtokenstosample", "maxnewtokens",
     "maxcompletiontokens", "maxoutputtokens"}
)  # fmt: skip
# And the budget for thinking. If that isn't below the limit, it is unclear which applies: with
# tools, Anthropic's models think beyond the limit, and gateways raise it.
_THOUGHT = (("thinking", "budget_tokens"), ("reasoning", "max_tokens"))
# Keys of a body that change what it costs. Some readers don't mind their case.
_READ = {"model", "n", "best_of", "prompt", "tools", "service_tier", "speed", "inference_geo",
"input", "messages", *OTHER_MODELS, *ELSEWHERE_KEYS, *_BEYOND_KEYS, *BILL_MORE_KEYS, _EDITS_KEY,
         *(key for keys in _LIMITS.values() for key in keys if key.islower())}  # fmt: skip
MOST_CHOICES = 128
# By OpenAI, and by Cohere and AI21 at Bedrock.
_CHOICES = ("n", "best_of", "num_generations", "numResults")
# A body with more of these than the longest context has words isn't parsed: a parsed value takes a
# hundred times its bytes, and blocks everybody.
MOST_MARKS = 500_000
_MARKS = (b"{", b"[", b",", b":")


# The maximum number of objects of a body that are looked at (each takes microseconds), and the
# maximum length of a form that is read. More would block everybody.
MOST_OBJECTS = 20_000
MOST_FORM_BYTES = 256 * 1024
# Parts that are pictures at OpenAI's APIs, in the body or anywhere else.
_OPENAI_TYPES = ("image_url", "input_image", "computer_screenshot")
# Formats that both vendors accept. How they read others (a vector drawing, say) is unknown.
_INLINE = re.compile(r"data:image/(?:png|jpe?g|gif|webp);base64,")


class _TooManyError(ValueError):
    """Raised if a body has more objects than are looked at."""


class _Seen:
    """Facts from anywhere in a body: the types of its parts, cache writes, pictures, and whether an
    object repeats a key."""

    def __init__(self) -> None:
        self.types: set[str] = set()
        self.objects = 0
        self.is_doubled = False
        self.writes_cache = False
        self.writes_long_cache = False
        self.asks_long_cache = False
        self.pictures = 0
        self.has_documents = False
        self.has_links = False

    def look(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self.objects += 1
        if self.objects > MOST_OBJECTS:
            raise _TooManyError
        made = dict(pairs)
        self.is_doubled = self.is_doubled or len(made) != len(pairs)
        self.writes_cache = self.writes_cache or any("cache" in key for key in made)
        self.writes_long_cache = self.writes_long_cache or made.get("ttl", "5m") != "5m"
        self.asks_long_cache = self.asks_long_cache or any(
            "cache" in key
            and isinstance(value, dict)
            and not _MINUTES.fullmatch(text_of(value.get("ttl", "5m")))
            for key, value in pairs
        )
        kind = made.get("type")
        if isinstance(kind, str):
            self.types.add(kind)
        is_inline = is_openai_picture(made) and inline_picture(made) != ""
        self.has_links |= "s3Location" in made or (is_openai_picture(made) and not is_inline)
        is_picture = (
            is_inline
            or text_of(made.get("media_type")).startswith("image/")
            or _holds(made.get("image"))
        )
        self.pictures += is_picture
        # Pages of a document are pictures, too: a few bytes make many.
        self.has_documents |= (kind == "base64" and not is_picture) or any(
            _holds(made.get(key)) for key in _LONG_PARTS
        )
        return made


def read_call(
    api: Api,
    path: str,
    body: bytes,
    *,
    host: str = "",
    headers: tuple[tuple[str, str], ...] = (),
    is_encoded: bool = False,
    at_model_host: bool = True,
) -> ModelCall | None:
    """Return the call that a request makes; None if its body is no model's (another site with the
    same path).

    A body that is encoded, can't be read, or repeats a key (two readers may differ then) counts as
    the largest possible. So does a body with too many values, at any host: a few packed bytes may
    stand for millions. If a gateway may turn it into other calls, it is `unmetered`.
    """
    if not is_encoded and has_too_many_values(body):
        return _largest(api, body, path, host, at_model_host=at_model_host)
    seen = _Seen()
    root: Any = None
    if not is_encoded:
        try:
            root = json.loads(body, object_pairs_hook=seen.look)
        except _TooManyError:
            return _largest(api, body, path, host, at_model_host=at_model_host)
        except (ValueError, RecursionError):
            root = None
    if not isinstance(root, dict):
        return _largest(api, body, path, host, at_model_host=True) if at_model_host else None
    named, *elsewhere = models_named(path, name_of(root.get("model")))
    if not at_model_host and not (named and _is_shaped(api, root)):
        return None
    if seen.is_doubled or _is_ambiguous(root) or _is_read_otherwise(body, headers):
        return _largest(api, body, path, host, at_model_host=at_model_host)
    tools = tools_of(root)
    others = tuple(dict.fromkeys((*elsewhere, *others_named(root, headers))))
    models = (named, *others)
    if asks_elsewhere(root, models, headers):
        return ModelCall(api="unmetered", body_bytes=len(body))
    is_whole = not is_kept(root, models)
    # The id of a stored item isn't a model's name.
    others = others if is_whole or "" in others else (*others, "")
    return ModelCall(
        api=api,
        model=named,
        body_bytes=_text_bytes(body),
        max_output_tokens=_limit(api, root),
        choices=_choices(root),
        beyond_body=not is_whole
        or always_search(models)
        or _reaches_beyond(root, seen)
        or any(runs_elsewhere(tool, host) for tool in tools),
        # OpenAI's newer models write to their cache unasked.
        writes_cache=api in ("chat", "responses") or seen.writes_cache,
        writes_long_cache=api in ("chat", "responses") or seen.writes_long_cache,
        asks_long_cache=seen.asks_long_cache,
        tier=_tier(root, headers),
        regional=root.get("inference_geo") not in (None, "global")
        or is_regional(host, path, named),
        # A tool's arguments are generated before they are sent; some models send them only as a
        # whole.
        shows_output=_is_told_not_to_think(api, host, root) and not root.get("tools"),
        pictures=seen.pictures,
        picture_bytes=picture_bytes(api, root),
        searches=searches(api, root, tools),
        previews=any(previews(tool) for tool in tools),
        steps=max(
            steps(api, root, tools, host, is_kept=not is_whole),
            COMPACTING_STEPS if _edits_more(root) else 1,
        ),
        others=others,
        disputed=bool(others) and not says_what_answered(host),
        advisors=tuple(map(name_of, advisors(tools))),
        bills_more=at_model_host and bills_more(root, tools, models, host),
    )


def has_too_many_values(text: bytes) -> bool:
    """Return whether this JSON could hold so many values that it shouldn't be parsed."""
    return sum(map(text.count, _MARKS)) > MOST_MARKS


def _largest(api: Api, body: bytes, path: str, host: str, *, at_model_host: bool) -> ModelCall:
    """Return the call for a body of which only length and address are known: it may use any tool,
    even one that costs more than tokens."""
    choices = MOST_CHOICES if api == "chat" else 1
    others = tuple(filter(None, models_named(path, "")))
    return ModelCall(
        api=api,
        body_bytes=len(body),
        beyond_body=True,
        steps=MOST_LIMIT,
        choices=choices,
        tier="unknown",
        regional=True,
        others=others,
        disputed=bool(others) and not says_what_answered(host),
        bills_more=at_model_host,
    )


def _holds(value: object) -> bool:
    """Return whether it is a part of a Bedrock converse call that contains a file."""
    return isinstance(value, dict) and "source" in value


def _is_read_otherwise(body: bytes, headers: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a server that trusts the headers may read the body otherwise: as a form, or in
    another charset."""
    said = [value.lower() for name, value in headers if name.lower() == "content-type"]
    charsets = {found[1] for one in said for found in _CHARSET.finditer(one)}
    known = _CHARSETS | _LIKE_ASCII if body.isascii() else _CHARSETS
    return not charsets <= known or (any(_FORM in one for one in said) and _is_form(body))


def _is_form(body: bytes) -> bool:
    """Return whether a reader of forms would find words of a call in it, or it is too long to
    tell."""
    if len(body) > MOST_FORM_BYTES:
        return True
    try:
        fields = parse_qsl(
            body.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError:
        return True
    return any(key_of(name) in _READ for name, _ in fields)


def _text_bytes(body: bytes) -> int:
    """Return the length of a body in bytes, or in UTF-8 if that is longer: in UTF-16 a word may
    have fewer bytes than tokens."""
    return max(
        len(body),
        len(
            body.decode(json.detect_encoding(body), "surrogatepass").encode(errors="surrogatepass")
        ),
    )


def _is_ambiguous(root: dict[str, Any]) -> bool:
    """Return whether a case-insensitive reader of keys finds something that others don't."""
    return any(key not in _READ and key.casefold() in _READ for key in root)


def _is_shaped(api: Api, root: dict[str, Any]) -> bool:
    keys = {
        "messages": ("messages",),
        "chat": ("messages", "prompt"),
        "embeddings": ("input",),
        "responses": ("input", "prompt"),
    }.get(api)
    return keys is None or any(key in root for key in keys)


def _is_told_not_to_think(api: Api, host: str, root: dict[str, Any]) -> bool:
    """Return whether it tells the model not to think, in the place where its API reads that.
    Anywhere else the words are ignored, and the model thinks."""
    if api == "chat":
        # Another server that speaks OpenAI's API may ask a model that ignores it.
        return is_openai(host) and root.get("reasoning_effort") == "none"
    if api not in ("messages", "invoke", "converse"):
        return False
    part = root.get("additionalModelRequestFields") if api == "converse" else root
    thinking = part.get("thinking") if isinstance(part, dict) else None
    return isinstance(thinking, dict) and thinking.get("type") == "disabled"


def _tier(root: dict[str, Any], headers: tuple[tuple[str, str], ...]) -> Tier:
    """Return the dearest tier that it asks for, in any place."""
    tier, latency = root.get("serviceTier"), root.get("performanceConfig")
    said = [root.get("speed"), root.get("service_tier")]
    said += [tier.get("type")] if isinstance(tier, dict) else []
    said += [latency.get("latency")] if isinstance(latency, dict) else []
    said += [value.strip().lower() for name, value in headers if name.lower() in _TIER_HEADERS]
    return dearest_tier(*said)


def _limit(api: Api, root: dict[str, Any]) -> int | None:
    """Return the body's own limit, in the least generous reading: the largest that it names, and
    none if a number isn't plainly one."""
    parts = (
        (root.get("inferenceConfig"), root.get("additionalModelRequestFields"))
        if api == "converse"
        else (root,)
    )
    own = [
        part[key]
        for part in parts
        if isinstance(part, dict)
        for key in _LIMITS.get(api, ())
        if key in part
    ]
    # It is unknown which vendor's keys a model reads. In addition to its API's own limit they may
    # allow more; alone they limit nothing.
    named = own + _makers_limits(root) if any(number is not None for number in own) else own
    found = [number for number in named if number is not None]
    if not all(map(_is_limit, found)):
        return None
    most = max(found, default=None)
    thought = [inner[key] for part in parts if isinstance(part, dict) for holder,
    key in _THOUGHT if isinstance(inner := part.get(holder),
    dict) and inner.get(key) is not None]  # fmt: skip
    return (
        most
        if most is None
        or all(number == 0 or (_is_limit(number) and number < most) for number in thought)
        else None
    )


def _makers_limits(root: dict[str, Any]) -> list[object]:
    """Return the limits in a body, or a part of it, under every vendor's names for them."""
    parts = [root, *_dicts(root)]
    parts += _dicts(root.get("additionalModelRequestFields"))
    return [
        value
        for part in parts
        for key, value in part.items()
        if key.casefold().replace("_", "") in _MAKERS_LIMITS
    ]


def _dicts(part: object) -> list[dict[str, Any]]:
    return (
        [value for value in part.values() if isinstance(value, dict)]
        if isinstance(part, dict)
        else []
    )


def _is_limit(number: object) -> TypeIs[int]:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def _choices(root: dict[str, Any]) -> int:
    """Return how many answers are made and billed, over all prompts."""
    wanted = [1 if root.get(key) is None else root[key] for key in _CHOICES]
    each = max(
        min(max(one, 1), MOST_CHOICES) if isinstance(one, int) else MOST_CHOICES for one in wanted
    )
    prompt = root.get("prompt")
    # A list of numbers is one prompt, of tokens.
    is_several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    return each * (len(prompt) if is_several and isinstance(prompt, list) else 1)


def _reaches_beyond(root: dict[str, Any], seen: _Seen) -> bool:
    return (
        any(root.get(key) for key in _BEYOND_KEYS)
        or _edits_more(root)
        or not seen.types.isdisjoint(_BEYOND_TYPES)
        or any(kind.startswith(_SERVER_TOOLS) for kind in seen.types)
        or seen.has_documents
        or seen.has_links
        or _refers(root)
    )


def _refers(root: dict[str, Any]) -> bool:
    """Return whether an item of OpenAI's responses refers to a stored item, whose type may be left
    out. A message has a role."""
    items = root.get("input")
    return isinstance(items, list) and any(
        isinstance(item, dict)
        and item.get("type") is None
        and "id" in item
        and not item.get("role")
        for item in items
    )


def _edits_more(root: dict[str, Any]) -> bool:
    """Return whether the provider changes the conversation, other than by leaving some of it
    out."""
    asked = root.get(_EDITS_KEY)
    edits = asked.get("edits") if isinstance(asked, dict) else asked
    is_clearing = isinstance(edits, list) and all(
        isinstance(edit, dict) and edit.get("type") in _CLEARING_EDITS for edit in edits
    )
    return bool(asked) and not is_clearing


def is_openai_picture(part: dict[str, Any]) -> bool:
    """Return whether a part is a picture in the form of OpenAI's APIs."""
    return part.get("type") in _OPENAI_TYPES


def inline_picture(part: dict[str, Any]) -> str:
    """Return the picture that such a part contains; empty if the picture is elsewhere."""
    link = part.get("image_url")
    address = link.get("url") if isinstance(link, dict) else link
    is_inline = isinstance(address, str) and part.get("file_id") is None and _INLINE.match(address)
    return str(address) if is_inline else ""


def picture_bytes(api: Api, root: dict[str, Any]) -> int:
    """Count the bytes of pictures in places where the API reads one; in a tool's arguments the same
    bytes are words."""
    if api == "messages":
        contents = [_parts(message.get("content")) for message in _parts(root.get("messages"))]
        # A tool's result may have pictures in it, too.
        contents += [_parts(part.get("content")) for parts in contents for part in parts if part.get("type") == "tool_result"]  # fmt: skip  # noqa: E501
        return sum(len(_anthropic_picture(part)) for parts in contents for part in parts)
    if api == "chat":
        contents = [_parts(message.get("content")) for message in _parts(root.get("messages"))]
    elif api == "responses":
        # The one holds messages, the other results of tools.
        contents = [
            _parts(item.get(key))
            for item in _parts(root.get("input"))
            for key in ("content", "output")
        ]
    else:
        contents = []
    return sum(
        len(inline_picture(part)) for parts in contents for part in parts if is_openai_picture(part)
    )


def _parts(value: object) -> list[dict[str, Any]]:
    listed = value if isinstance(value, list) else [value]
    return [part for part in listed if isinstance(part, dict)]


def _anthropic_picture(part: dict[str, Any]) -> str:
    """Return a part's picture as base64; empty if it isn't a picture."""
    source = part.get("source")
    if (
        part.get("type") != "image"
        or not isinstance(source, dict)
        or source.get("type") != "base64"
    ):
        return ""
    data = source.get("data")
    return data if isinstance(data, str) else ""
