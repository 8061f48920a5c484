"""Bound and charge of a model call.

    bound    before it is sent: no more than this can be billed, by the size of its body and the
             limit that it names
    charge   after: the provider's own count, and the bound for every count that is missing

INVARIANT: a missing number counts as its maximum, never as its minimum; `Charge.flags` says so. A
token stands for at least one byte of text, so the text bytes of a body bound its tokens.
"""

from typing import Literal

import msgspec

from supervisor.core.models.model_calls import TIERS, ModelCall, Tokens
from supervisor.core.models.prices import Price, PriceTable
from supervisor.core.models.usage import Usage

# Tokens that providers add to a prompt: the words around tools, roles and pictures.
ADDED_TOKENS = 2048
# The most that a picture counts as, however few bytes it is. Claude: 4,784, after it was made
# smaller (Anthropic's page on vision). Any other: of a picture of 2048 by 768 gpt-4o-mini counts
# 2,833 and 5,667 for each of eight tiles, the rest 10,000 patches and less (OpenAI's guide to
# images and vision).
CLAUDE_PICTURE_TOKENS = 5000
PICTURE_TOKENS = 2833 + 8 * 5667

Flag = Literal[
    "unknown_model", "estimated", "cut_off", "failed", "lost", "bills_more", "unknown_tier"
]


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and their cost. `flags`: why the figure isn't simply the provider's."""

    tokens: Tokens
    cost_picousd: int
    flags: tuple[Flag, ...] = ()


def bound(call: ModelCall, table: PriceTable) -> Charge:
    """Return the most that a call can be billed: by the dearest of the models that may answer, plus
    the models that it also asks."""
    parts = [
        _most(call, (call.model, *call.others), table),
        *(_most(call, (name,), table) for name in call.advisors),
    ]
    flags: list[Flag] = ["unknown_model"] if any(part.flags for part in parts) else []
    flags += ["unknown_tier"] if call.tier == "unknown" else []
    flags += ["bills_more"] if call.bills_more else []
    return Charge(
        tokens=sum((part.tokens for part in parts), start=Tokens()),
        cost_picousd=sum(part.cost_picousd for part in parts),
        flags=tuple(flags),
    )


def _most(call: ModelCall, names: tuple[str, ...], table: PriceTable) -> Charge:
    """Return the most that one of these models can be billed. One may have the longest prompt and
    another the highest price."""
    found = [(*table.find(name), "claude" in name.lower()) for name in names]
    sizes = [
        _size(call, price, table, is_known=is_known, is_claude=is_claude)
        for price, is_known, is_claude in found
    ]
    prompt, output = max(size[0] for size in sizes), max(size[1] for size in sizes)
    splits = [Tokens(input=prompt, output=output, searches=call.searches)]
    if call.writes_cache:
        splits.append(Tokens(cache_write=prompt, output=output, searches=call.searches))
    if call.writes_long_cache:
        splits.append(Tokens(cache_write_long=prompt, output=output, searches=call.searches))
    costs = [
        (table.cost_picousd(price, tokens, call), tokens, is_known)
        for price, is_known, _ in found
        for tokens in splits
    ]
    cost, tokens, is_known = max(costs, key=lambda one: one[0])
    return Charge(tokens=tokens, cost_picousd=cost, flags=() if is_known else ("unknown_model",))


def _size(
    call: ModelCall, price: Price, table: PriceTable, *, is_known: bool, is_claude: bool
) -> tuple[int, int]:
    """Return the most tokens that one model can take in and give."""
    picture = CLAUDE_PICTURE_TOKENS if is_known and is_claude else PICTURE_TOKENS
    in_body = call.body_bytes - call.picture_bytes + ADDED_TOKENS + call.pictures * picture
    steps = min(call.steps, table.server_steps)
    # Each of several prompts may have this length. No context limits how many texts are embedded at
    # once, and a model that isn't in the table may be an embedding model.
    longest = (
        price.context_tokens * call.choices if is_known and call.api != "embeddings" else in_body
    )
    prompt = price.context_tokens * steps if call.beyond_body else min(in_body, longest)
    most = price.max_output_tokens
    limit = call.max_output_tokens or most
    output = (min(limit, most) if is_known else limit) * call.choices
    return prompt, 0 if call.api == "embeddings" else output


def charge(call: ModelCall, usage: Usage, reserved: Charge, table: PriceTable) -> Charge:
    """Return a call's cost. If the response names another model than the request, the dearer of the
    two counts."""
    # If the provider takes further steps by itself, the count at the beginning of an answer covers
    # only the first step.
    has_input = usage.has_input and not (call.beyond_body and usage.only_began)
    tokens = _filled(call, usage, reserved.tokens, has_input=has_input)
    is_estimated = not (has_input and usage.has_output)
    # If a request names several models, a gateway may use one and report another. If it doesn't say
    # which one answered, or names one without a price, it may have used the dearest, or one without
    # a price.
    is_any = bool(call.others) and (call.disputed or not table.find(usage.model).is_known)
    names = (call.model, *call.others) if is_any else tuple(filter(None, (call.model, usage.model)))
    names += (usage.model,) if call.disputed and usage.model else ()
    found = [table.find(name) for name in names]
    is_known = (all if is_any else any)(one.is_known for one in found)
    prices: list[Price] = [one.price for one in found if one.is_known or is_any] or [table.highest]
    flags: list[Flag] = []
    if not is_known and tokens.total:
        flags.append("unknown_model")
    if is_estimated:
        flags.append("estimated")
    if usage.cut_off:
        flags.append("cut_off")
    if usage.failed:
        flags.append("failed")
    elif call.bills_more:
        flags.append("bills_more")
    served = msgspec.structs.replace(call, tier=max(call.tier, usage.tier, key=TIERS.index))
    if served.tier == "unknown" and not usage.failed:
        flags.append("unknown_tier")
    cost = max(table.cost_picousd(price, tokens, served) for price in prices)
    for beside in usage.beside:
        price = table.find(beside.model or usage.model or call.model).price
        cost += table.cost_picousd(price, beside.tokens, served)
        tokens += beside.tokens
    # Only the end of an answer reports the models asked beside, and the reads after the first step.
    is_unsaid = bool(call.advisors) or (usage.has_input and not has_input)
    least = reserved.cost_picousd if is_estimated and is_unsaid else 0
    return Charge(
        tokens=tokens, cost_picousd=max(cost, least, usage.cost_picousd), flags=tuple(flags)
    )


def lost(reserved: Charge) -> Charge:
    """Return the charge of a call whose end wasn't seen: its reservation."""
    return msgspec.structs.replace(reserved, flags=(*reserved.flags, "lost"))


def _filled(call: ModelCall, usage: Usage, most: Tokens, *, has_input: bool) -> Tokens:
    """Return the tokens of a call, with missing counts filled in."""
    tokens = usage.tokens
    if call.asks_long_cache and not usage.tells_writes:
        tokens = msgspec.structs.replace(tokens, cache_write=0, cache_write_long=tokens.written)
    if not has_input and tokens.prompt < most.prompt:
        tokens = msgspec.structs.replace(
            tokens,
            input=most.input,
            cache_read=0,
            cache_write=most.cache_write,
            cache_write_long=most.cache_write_long,
        )
    if not usage.has_output:
        is_seen = call.shows_output and usage.content_bytes is not None
        seen = min(usage.content_bytes or 0, most.output) if is_seen else most.output
        tokens = msgspec.structs.replace(
            tokens, output=max(tokens.output, seen), searches=max(tokens.searches, most.searches)
        )
    return tokens
