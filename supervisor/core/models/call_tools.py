"""Tools of a model call that the provider runs itself, and their extra cost.

It must never mistake an unknown tool for the caller's own: a tool that isn't listed here as run by
the caller, or as billed in a way that the response shows, may cost anything. Sources: the lists of
tools of Anthropic, OpenAI (Responses), OpenRouter (server tools, plugins, variants) and Amazon
Bedrock (Converse).
"""

from typing import Any, TypeIs

from supervisor.core.models.model_calls import Api, is_openrouter

# Tools that the caller runs: functions, and those for which vendors only define a form.
_OWN_TYPES = (
    "function",
    "custom",
    "local_shell",
    "apply_patch",
    "computer",
    "computer_use_preview",
    "namespace",
)
_OWN_STARTS = ("bash_", "text_editor_", "computer_", "memory_", "browser_toolset_")
# Keys of tools that have no type: Anthropic's and OpenAI's functions, and those of Bedrock's
# Converse.
_OWN_KEYS = ("name", "function", "toolSpec", "cachePoint")
# Tools that the provider runs, and bills by tokens, or by searches that its answer counts.
_TOLD_STARTS = (
    "web_search",
    "web_fetch",
    "code_execution",
    "file_search",
    "tool_search",
    "mcp",
    "advisor_",
)
_SEARCHES = ("web_search", "file_search")
# A tool of Anthropic's that asks another model.
_ADVISOR = "advisor"
# Keys that bill more by themselves: searches that no answer counts, and OpenRouter's own parts.
BILL_MORE_KEYS = ("web_search_options", "search_parameters", "plugins")
# Models that search in every call, whatever it says (OpenAI's, Perplexity's), and OpenRouter's
# suffix that makes any model do so.
_SEARCHING_MODELS = ("-search-preview", "-search-api", ":online", "sonar", "deep-research")
# How OpenRouter and Bedrock name models that are stored at the provider.
_KEPT_MODELS = ("@preset/", ":prompt/")
# Assumed bound on searches and look-ups of a call that names none: Anthropic pauses after 10 steps,
# of some searches each, and no other names a limit of its own. A higher one would hold calls of
# clients that switch searching on with every call, as Codex does, for the price of searches that
# never happen.
MOST_SEARCHES = 128
# A higher limit counts as none: no call runs that long.
MOST_LIMIT = 10_000
# Steps that the provider makes by itself to shorten a conversation, and to answer it then.
COMPACTING_STEPS = 2


def tools_of(root: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tools that a body names, including those of a namespace."""
    config = root.get("toolConfig")
    named = _listed(root.get("tools")) + _listed(
        config.get("tools") if isinstance(config, dict) else None
    )
    return named + [inner for tool in named for inner in _listed(tool.get("tools"))]


def runs_elsewhere(tool: dict[str, Any], host: str) -> bool:
    """Return whether the provider may run the tool, and the model may read its result."""
    kind = tool.get("type")
    if kind is None:
        return not any(key in tool for key in _OWN_KEYS)
    if kind == "shell":
        # OpenRouter runs all of these itself.
        place = tool.get("environment")
        return is_openrouter(host) or not (isinstance(place, dict) and place.get("type") == "local")
    if kind == "tool_search" and tool.get("execution") == "client":
        return False
    return kind not in _OWN_TYPES and not text_of(kind).startswith(_OWN_STARTS)


def searches(api: Api, root: dict[str, Any], tools: list[dict[str, Any]]) -> int:
    """Return the maximum number of searches that it may be billed: by the limit of each tool, or of
    the call, if its API reads one."""
    found = 0
    for tool in tools:
        if text_of(tool.get("type")).startswith(_SEARCHES):
            found += (
                _limit(root, "max_tool_calls") if api == "responses" else _limit(tool, "max_uses")
            )
    return found


def previews(tool: dict[str, Any]) -> bool:
    """Return whether it is OpenAI's older web search, which has its own prices."""
    return text_of(tool.get("type")).startswith("web_search_preview")


def steps(
    api: Api, root: dict[str, Any], tools: list[dict[str, Any]], host: str, *, is_kept: bool = False
) -> int:
    """Return the maximum number of steps that the provider may take by itself; in each, the model
    reads everything again. `MOST_LIMIT` if it names no limit.

    Anthropic's limits don't bound steps: a tool that is used up says so, and the model goes on.
    """
    if not (
        is_kept or root.get("mcp_servers") or any(runs_elsewhere(tool, host) for tool in tools)
    ):
        return 1
    limit = root.get("max_tool_calls") if api == "responses" else None
    return min(limit + 1, MOST_LIMIT) if _is_limit(limit) else MOST_LIMIT


def _limit(part: dict[str, Any], key: str) -> int:
    limit = part.get(key)
    return min(limit, MOST_LIMIT) if _is_limit(limit) else MOST_SEARCHES


def _is_limit(value: object) -> TypeIs[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def advisors(tools: list[dict[str, Any]]) -> list[object]:
    """Return the names of the models that the tools ask."""
    return [tool.get("model") for tool in tools if text_of(tool.get("type")).startswith(_ADVISOR)]


def is_kept(root: dict[str, Any], models: tuple[str, ...]) -> bool:
    """Return whether part of the call is stored at the provider: OpenAI's prompts and OpenRouter's
    presets, which every holder of the key may write, bring a model, texts and tools of their own.
    """
    named = any(word in model.lower() for model in models for word in _KEPT_MODELS)
    return named or bool(root.get("preset")) or isinstance(root.get("prompt"), dict)


def always_search(models: tuple[str, ...]) -> bool:
    """Return whether one of the models always reads search results, whatever the call says."""
    return any(word in model.lower() for model in models for word in _SEARCHING_MODELS)


def bills_more(
    root: dict[str, Any], tools: list[dict[str, Any]], models: tuple[str, ...], host: str
) -> bool:
    """Return whether it may cost something that no count of tokens or searches shows."""
    return (
        is_kept(root, models)
        or any(root.get(key) not in (None, []) for key in BILL_MORE_KEYS)
        or always_search(models)
        or any(
            runs_elsewhere(tool, host) and not text_of(tool.get("type")).startswith(_TOLD_STARTS)
            for tool in tools
        )
    )


def text_of(value: object) -> str:
    """Return a text; empty for anything else, because writing out nested data at each level takes
    quadratic time."""
    return value if isinstance(value, str) else ""


def _listed(tools: object) -> list[dict[str, Any]]:
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
