"""Models that a call may mean, by its address and its body.

A body's `model` is only one of the places where servers look: Bedrock, Vertex and Azure go by the
path, LiteLLM by the path or the query before the body, others by the body alone. It must never
leave out a model that a server may choose. Sources: the API references of these, and LiteLLM's
proxy.
"""

import re
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, unquote

from supervisor.core.models.model_calls import MOST_NAME_CHARS, readings

type Headers = tuple[tuple[str, str], ...]
# How paths name a model. If several segments do, each may count.
_IN_PATHS = (
    # Bedrock's id or profile. Only the first `/model/` of a line is tried: trying each to the end
    # would be quadratic in an agent's path.
    re.compile(r"^(?>.*?/model/)(.+)/(?:converse|invoke)", re.IGNORECASE | re.MULTILINE),
    re.compile(r"^(?>.*?/model/)(.+?)/(?:converse|invoke)", re.IGNORECASE | re.MULTILINE),
    re.compile(r"/models/([^/:]+)(?=:)", re.IGNORECASE),  # Vertex
    # Azure's deployment, with which the body's model means nothing; at LiteLLM either is a model.
    re.compile(r"/(?:deployments|engines)/([^/]+)(?=/)", re.IGNORECASE),
)
_IN_QUERIES = "model"
# Many servers read `model[0]` and the like as a list with the name before the bracket.
_BRACKET = re.compile(r"[\[\]]")
# Keys by which the provider may take another model than the named one.
OTHER_MODELS = (
    *("models", "fallbacks", "preset"),
    *("context_window_fallbacks", "content_policy_fallbacks", "context_window_fallback_dict"),
)
MOST_OTHERS = 10
# Headers that send a call on, and as another model: Portkey's, by a stored name or in full, and
# Helicone's.
_ROUTES = ("x-portkey-config", "helicone-fallbacks")
# Keys and headers that tell LiteLLM and Cloudflare to retry, or to stop waiting: the output that a
# model made until then is billed each time.
_AGAIN = ("num_retries", "max_retries", "x-litellm-num-retries", "cf-aig-max-attempts")
_NO_LONGER = (
    *("timeout", "request_timeout", "stream_timeout"),
    *("x-litellm-timeout", "x-litellm-stream-timeout", "cf-aig-request-timeout"),
)
# Fields that make a gateway send something other than the body, to any model: parts for OpenAI's
# client, and settings of LiteLLM's router.
ELSEWHERE_KEYS = (
    "extra_body",
    "extra_query",
    "extra_headers",
    "user_config",
    "model_list",
    "router_settings_override",
)
# LiteLLM's ways to ask several models at once, each as often as it is named.
_SEVERAL = ","


def models_named(path: str, said: str) -> list[str]:
    """Return the models that may be meant, the likeliest first: those that the path names, in each
    possible reading, the one in the body (`said`), and those of the query. A server that goes by
    one of these may ignore the others, and a server that resolves `/x/..` finds other names than
    one that doesn't."""
    names: list[str] = []
    for one in (unquote(path.partition("?")[0]), *sorted(readings(path))):
        names += _in_path(one) or [said]
    names += [said] if said else []
    names += _in_query(path.partition("?")[2])
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name[:MOST_NAME_CHARS].casefold(), name[:MOST_NAME_CHARS])
    first, *rest = found.values()
    return [first, *rest] if len(rest) <= MOST_OTHERS else [first, ""]


def others_named(root: dict[str, Any], headers: Headers) -> tuple[str, ...]:
    """Return the other models that may answer according to the request; an empty name stands for
    any model."""
    found: list[object] = ["" for _ in _routes(headers)]
    for key in OTHER_MODELS:
        value = root.get(key)
        found += value if isinstance(value, list) else [value] if value else []
    names = [name_of(one) for one in found]
    return tuple(dict.fromkeys(names)) if len(names) <= MOST_OTHERS else ("",)


def asks_elsewhere(root: dict[str, Any], models: tuple[str, ...], headers: Headers) -> bool:
    """Return whether the request may cause other calls than the body says."""
    is_several = isinstance(root.get("model"), list) or any(_SEVERAL in model for model in models)
    is_routed = any(route.lstrip()[:1] in ("{", "[") for route in _routes(headers))
    return (
        is_several
        or is_routed
        or any(root.get(key) for key in ELSEWHERE_KEYS)
        or _asks_again(root, headers)
    )


def _routes(headers: Headers) -> list[str]:
    return [value for name, value in headers if name.lower() in _ROUTES]


def _asks_again(root: dict[str, Any], headers: Headers) -> bool:
    said = [*root.items(), *((name.lower(), value.strip()) for name, value in headers)]
    named = {name for name, value in said if value not in (None, 0, "", "0")}
    return not named.isdisjoint(_AGAIN) and not named.isdisjoint(_NO_LONGER)


def name_of(value: object) -> str:
    """Return a model's name, cut to the kept length; empty if it isn't a name."""
    return value[:MOST_NAME_CHARS] if isinstance(value, str) else ""


def key_of(field: str) -> str:
    """Return the name of a form's or query's field, as a reader that ignores case and accepts lists
    reads it."""
    return _BRACKET.split(field.strip("[] "), maxsplit=1)[0].strip().casefold()


def _in_path(reading: str) -> list[str]:
    """Return the models that a path names."""
    return [
        found[1]
        for pattern in _IN_PATHS
        for found in islice(pattern.finditer(reading), MOST_OTHERS + 2)
    ]


def _in_query(query: str) -> list[str]:
    """Return the models that a query names, whatever separates its parts."""
    fields = parse_qsl(query.replace(";", "&"))
    return [value for name, value in fields if key_of(name) == _IN_QUERIES]
