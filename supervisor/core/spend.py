"""What a model call may cost at most, and what it did cost.

    bound    before it goes out: no more than this can be billed, by the size of its body and the limit that it names
    charge   after: the provider's own count, and the bound for whatever is missing of it

INVARIANT: what is missing is taken for the most that it can be, never for the least; `Charge.flags` says so. A token stands for at least one
byte of text, so the bytes of a body bound its tokens.
"""

from typing import Literal

import msgspec

from supervisor.core.model_calls import ModelCall, Tokens
from supervisor.core.prices import Price, PriceTable
from supervisor.core.usage import Usage

# What providers add to a prompt by themselves: the words around tools, roles and pictures.
ADDED_TOKENS = 2048

Flag = Literal["unknown_model", "estimated", "cut_off", "failed", "lost"]


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and their cost. `flags`: why the figure isn't simply the provider's."""

    tokens: Tokens
    cost_picousd: int
    flags: tuple[Flag, ...] = ()


def bound(call: ModelCall, table: PriceTable) -> Charge:
    """The most that a call can be billed."""
    price, is_known = table.find(call.model)
    in_body = call.body_bytes + ADDED_TOKENS
    prompt = price.context_tokens if call.beyond_body else min(in_body, price.context_tokens)
    most = price.max_output_tokens
    output = (
        min(call.max_output_tokens, most) if call.max_output_tokens and is_known else call.max_output_tokens or most
    ) * call.choices
    splits = [Tokens(input=prompt, output=output)]
    if call.writes_cache:
        splits.append(Tokens(cache_write=prompt, output=output))
    if call.writes_long_cache:
        splits.append(Tokens(cache_write_long=prompt, output=output))
    costs = [(table.cost_picousd(price, tokens, call), tokens) for tokens in splits]
    cost, tokens = max(costs, key=lambda one: one[0])
    return Charge(tokens=tokens, cost_picousd=cost, flags=() if is_known else ("unknown_model",))


def charge(call: ModelCall, usage: Usage, reserved: Charge, table: PriceTable) -> Charge:
    """What a call cost. Where the response names another model than the request did, the dearer of the two."""
    tokens, is_estimated = _filled(call, usage, reserved.tokens)
    found = [table.find(name) for name in (call.model, usage.model) if name]
    known = [price for price, is_known in found if is_known]
    prices: list[Price] = known or [table.highest]
    flags: list[Flag] = []
    if not known and tokens.total:
        flags.append("unknown_model")
    if is_estimated:
        flags.append("estimated")
    if usage.cut_off:
        flags.append("cut_off")
    if usage.failed:
        flags.append("failed")
    served = msgspec.structs.replace(call, fast=call.fast or usage.fast)
    cost = max(table.cost_picousd(price, tokens, served) for price in prices)
    return Charge(tokens=tokens, cost_picousd=cost, flags=tuple(flags))


def lost(reserved: Charge) -> Charge:
    """A call whose end nobody saw: it counts as what was reserved for it."""
    return msgspec.structs.replace(reserved, flags=(*reserved.flags, "lost"))


def _filled(call: ModelCall, usage: Usage, most: Tokens) -> tuple[Tokens, bool]:
    """The tokens of a call, with what the provider didn't say filled in; whether anything was."""
    tokens = usage.tokens
    if not usage.has_input:
        tokens = msgspec.structs.replace(
            tokens, input=most.input, cache_write=most.cache_write, cache_write_long=most.cache_write_long
        )
    if not usage.has_output:
        seen = min(usage.content_bytes, most.output) if call.shows_output else most.output
        tokens = msgspec.structs.replace(tokens, output=max(tokens.output, seen))
    return tokens, not (usage.has_input and usage.has_output)
