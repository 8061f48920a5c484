"""What calls may cost and did: bounds hold, and what is missing is never taken for little."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models.model_calls import TIERS, ModelCall, Tokens
from supervisor.core.models.prices import parse_prices
from supervisor.core.models.spend import (
    ADDED_TOKENS,
    CLAUDE_PICTURE_TOKENS,
    PICTURE_TOKENS,
    bound,
    charge,
    lost,
)
from supervisor.core.models.usage import Beside, Usage

TABLE = parse_prices(
    (Path(__file__).resolve().parents[3] / "policy/prices.yaml").read_text(), "prices.yaml"
)
CALL = ModelCall(
    api="messages",
    model="claude-haiku-4-5",
    body_bytes=1000,
    max_output_tokens=500,
    writes_cache=False,
    writes_long_cache=False,
)
USD_PER_M = 10**6


def test_the_bound_of_a_plain_call() -> None:
    found = bound(CALL, TABLE)
    assert found.tokens == Tokens(input=1000 + ADDED_TOKENS, output=500)
    assert found.cost_picousd == (1000 + ADDED_TOKENS) * 1 * USD_PER_M + 500 * 5 * USD_PER_M
    assert found.flags == ()


def change(**facts: object) -> ModelCall:
    return ModelCall(**({name: getattr(CALL, name) for name in CALL.__struct_fields__} | facts))


def test_bounds_grow_with_what_isnt_known() -> None:
    assert bound(change(writes_cache=True), TABLE).tokens.cache_write == 1000 + ADDED_TOKENS
    assert (
        bound(change(writes_cache=True, writes_long_cache=True), TABLE).tokens.cache_write_long
        == 1000 + ADDED_TOKENS
    )
    assert bound(change(beyond_body=True), TABLE).tokens.input == 200_000
    assert bound(change(beyond_body=True, steps=3), TABLE).tokens.input == 600_000
    assert (
        bound(change(beyond_body=True, steps=99), TABLE).tokens.input
        == 200_000 * TABLE.server_steps
    )
    assert bound(change(body_bytes=10**9), TABLE).tokens.input == 200_000
    assert (
        bound(change(pictures=2), TABLE).tokens.input
        == 1000 + ADDED_TOKENS + 2 * CLAUDE_PICTURE_TOKENS
    )
    screenshot = change(model="gpt-6-sol", body_bytes=900_000, pictures=1, picture_bytes=899_000)
    assert bound(screenshot, TABLE).tokens.input == 1000 + ADDED_TOKENS + PICTURE_TOKENS
    assert (
        bound(change(model="claude-9", pictures=2), TABLE).tokens.input
        == 1000 + ADDED_TOKENS + 2 * PICTURE_TOKENS
    )
    assert (
        bound(change(searches=3), TABLE).cost_picousd
        == bound(CALL, TABLE).cost_picousd + 3 * TABLE.search_picousd
    )
    assert bound(change(bills_more=True), TABLE).flags == ("bills_more",)
    assert bound(change(max_output_tokens=None), TABLE).tokens.output == 64_000
    assert bound(change(max_output_tokens=10**9, choices=2), TABLE).tokens.output == 128_000
    unknown = bound(change(model="x", max_output_tokens=10**6), TABLE)
    assert unknown.flags == ("unknown_model",)
    assert unknown.tokens.output == 10**6
    assert unknown.cost_picousd > bound(CALL, TABLE).cost_picousd


def test_what_the_provider_says_is_what_it_cost() -> None:
    usage = Usage(
        tokens=Tokens(input=10, output=20),
        model="claude-haiku-4-5-20251001",
        has_input=True,
        has_output=True,
    )
    found = charge(CALL, usage, bound(CALL, TABLE), TABLE)
    assert (found.cost_picousd, found.flags) == (110 * USD_PER_M, ())


def test_the_dearest_that_may_answer_is_reserved_and_those_that_are_asked_beside() -> None:
    cheap, dear = bound(CALL, TABLE), bound(change(model="claude-opus-5"), TABLE)
    assert bound(change(others=("claude-opus-5",)), TABLE) == dear
    assert bound(change(others=("",)), TABLE).flags == ("unknown_model",)
    assert (
        bound(change(advisors=("claude-opus-5",)), TABLE).cost_picousd
        == cheap.cost_picousd + dear.cost_picousd
    )
    some = Usage(tokens=Tokens(input=10, output=20), has_input=True, has_output=True)
    unsaid = charge(change(others=("claude-opus-5",)), some, dear, TABLE)
    assert unsaid.cost_picousd == 10 * 5 * USD_PER_M + 20 * 25 * USD_PER_M
    preset = charge(change(others=("",)), some, dear, TABLE)
    assert preset.cost_picousd == 10 * TABLE.highest.rates.input + 20 * TABLE.highest.rates.output
    advised = change(advisors=("claude-opus-5",), shows_output=True)
    cut = charge(
        advised, Usage(has_input=True, content_bytes=9, cut_off=True), bound(advised, TABLE), TABLE
    )
    assert cut.cost_picousd == bound(advised, TABLE).cost_picousd
    said = msgspec.structs.replace(some, model="claude-haiku-4-5")
    assert (
        charge(change(others=("claude-opus-5",)), said, dear, TABLE).cost_picousd == 110 * USD_PER_M
    )


def test_another_model_that_answers_and_has_no_price_costs_the_highest_and_is_said() -> None:
    call = change(others=("nobodys/model-9",))
    usage = Usage(
        tokens=Tokens(input=10, output=20), model="nobodys/model-9", has_input=True, has_output=True
    )
    found = charge(call, usage, bound(call, TABLE), TABLE)
    assert found.cost_picousd == 10 * TABLE.highest.rates.input + 20 * TABLE.highest.rates.output
    assert found.flags == ("unknown_model",)


def test_of_several_that_may_answer_the_longest_is_reserved_at_the_dearest_price() -> None:
    """A fallback that takes and gives more than the dearest: a budget of tokens holds for that
    one."""
    long = change(model="claude-opus-4-1", max_output_tokens=None, body_bytes=900_000)
    found = bound(msgspec.structs.replace(long, others=("claude-haiku-5-5",)), TABLE)
    assert found.tokens.total == bound(change(model="claude-haiku-5-5", max_output_tokens=None,
    body_bytes=900_000), TABLE).tokens.total  # fmt: skip
    assert found.cost_picousd > bound(long, TABLE).cost_picousd


def test_no_context_is_known_of_a_model_that_isnt_in_the_table() -> None:
    assert bound(change(model="x", body_bytes=10**7), TABLE).tokens.input == 10**7 + ADDED_TOKENS


def test_a_write_to_the_cache_that_was_to_last_costs_so_where_the_answer_only_has_the_sum() -> None:
    call = change(asks_long_cache=True)
    usage = Usage(tokens=Tokens(cache_write=10), has_input=True, has_output=True)
    assert charge(call, usage, bound(CALL, TABLE), TABLE).tokens == Tokens(cache_write_long=10)
    told = msgspec.structs.replace(usage, tells_writes=True)
    assert charge(call, told, bound(CALL, TABLE), TABLE).tokens == Tokens(cache_write=10)
    assert charge(CALL, usage, bound(CALL, TABLE), TABLE).tokens == Tokens(cache_write=10)


def test_what_was_used_beside_the_answer_is_priced_by_who_used_it() -> None:
    beside = (
        Beside(model="", tokens=Tokens(input=100)),
        Beside(model="claude-opus-5", tokens=Tokens(input=3, output=1)),
        Beside(model="nobody's", tokens=Tokens(input=1)),
    )
    usage = Usage(
        tokens=Tokens(input=10, output=20), has_input=True, has_output=True, beside=beside
    )
    found = charge(CALL, usage, bound(CALL, TABLE), TABLE)
    assert found.tokens == Tokens(input=114, output=21)
    assert found.cost_picousd == (110 + 100 + 15 + 25) * USD_PER_M + TABLE.highest.rates.input


def test_where_the_provider_says_that_it_bills_more_that_is_what_it_cost() -> None:
    usage = Usage(
        tokens=Tokens(input=10, output=20), has_input=True, has_output=True, cost_picousd=10**12
    )
    assert charge(CALL, usage, bound(CALL, TABLE), TABLE).cost_picousd == 10**12
    less = Usage(
        tokens=Tokens(input=10, output=20), has_input=True, has_output=True, cost_picousd=1
    )
    assert charge(CALL, less, bound(CALL, TABLE), TABLE).cost_picousd == 110 * USD_PER_M


def test_of_a_call_that_was_cut_off_what_came_bounds_its_output_where_that_can_be_told() -> None:
    quiet = change(shows_output=True, searches=2)
    reserved = bound(quiet, TABLE)
    seen = charge(quiet, Usage(has_input=True, content_bytes=30, cut_off=True), reserved, TABLE)
    assert (seen.tokens.output, seen.tokens.searches) == (30, 2)
    unseen = charge(quiet, Usage(has_input=True, content_bytes=None, cut_off=True), reserved, TABLE)
    assert unseen.tokens.output == 500


def test_a_tool_that_costs_more_than_tokens_is_said() -> None:
    usage = Usage(has_input=True, has_output=True)
    dear = change(bills_more=True)
    assert charge(dear, usage, bound(dear, TABLE), TABLE).flags == ("bills_more",)
    failed = Usage(has_input=True, has_output=True, failed=True)
    assert charge(dear, failed, bound(dear, TABLE), TABLE).flags == ("failed",)


def test_of_two_models_the_dearer_one_and_of_unknown_ones_the_highest() -> None:
    tokens = Tokens(input=10, output=20)
    full = bound(CALL, TABLE)

    def cost(asked: str, answered: str) -> tuple[int, tuple[str, ...]]:
        usage = Usage(tokens=tokens, model=answered, has_input=True, has_output=True)
        found = charge(change(model=asked), usage, full, TABLE)
        return found.cost_picousd, found.flags

    opus = cost("claude-opus-4-6", "claude-opus-4-6")
    assert (
        cost("claude-haiku-4-5", "claude-opus-4-6")
        == opus
        == cost("claude-opus-4-6", "claude-haiku-4-5")
    )
    assert (
        cost("openrouter/auto", "anthropic/claude-opus-4.6") == opus == cost("claude-opus-4-6", "x")
    )
    assert (
        cost("x", "y")
        == (TABLE.cost_picousd(TABLE.highest, tokens, CALL), ("unknown_model",))
        == cost("", "")
    )
    nothing = charge(
        change(model="x"), Usage(has_input=True, has_output=True, failed=True), full, TABLE
    )
    assert (nothing.cost_picousd, nothing.flags) == (0, ("failed",))


def test_a_call_that_was_served_by_a_dearer_tier_costs_what_that_costs() -> None:
    call = ModelCall(api="responses", model="gpt-6-sol", max_output_tokens=10)
    said = Usage(tokens=Tokens(input=10, output=10), has_input=True, has_output=True)
    plain = charge(call, said, bound(call, TABLE), TABLE)
    fast = charge(call, msgspec.structs.replace(said, tier="fast"), bound(call, TABLE), TABLE)
    assert fast.cost_picousd == 2 * plain.cost_picousd
    odd = msgspec.structs.replace(said, tier="unknown")
    assert charge(call, odd, bound(call, TABLE), TABLE).flags == ("unknown_tier",)
    assert charge(call, odd, bound(call, TABLE), TABLE).cost_picousd == 6 * plain.cost_picousd
    asked = msgspec.structs.replace(call, tier="unknown")
    assert bound(asked, TABLE).cost_picousd == 6 * bound(call, TABLE).cost_picousd
    assert bound(asked, TABLE).flags == ("unknown_tier",)
    failed = Usage(has_input=True, has_output=True, failed=True)
    assert charge(asked, failed, bound(asked, TABLE), TABLE).flags == ("failed",)


def test_what_is_missing_counts_as_reserved() -> None:
    full = bound(CALL, TABLE)
    found = charge(CALL, Usage(content_bytes=7), full, TABLE)
    assert (found.tokens, found.cost_picousd, found.flags) == (
        full.tokens,
        full.cost_picousd,
        ("estimated",),
    )
    cut = Usage(tokens=Tokens(input=5, output=1), has_input=True, content_bytes=30, cut_off=True)
    assert charge(CALL, cut, full, TABLE).tokens == Tokens(input=5, output=500)
    shown = change(shows_output=True)
    assert charge(shown, cut, full, TABLE).tokens == Tokens(input=5, output=30)
    assert charge(shown, cut, full, TABLE).flags == ("estimated", "cut_off")
    assert lost(full).cost_picousd == full.cost_picousd
    assert lost(full).flags == ("lost",)


def test_where_the_provider_goes_on_by_itself_what_an_answer_begins_with_is_not_what_it_used() -> (
    None
):
    began = Usage(
        tokens=Tokens(input=9, cache_read=7, output=1),
        has_input=True,
        only_began=True,
        content_bytes=3,
        cut_off=True,
    )
    searching = change(beyond_body=True, shows_output=True, searches=5)
    full = bound(searching, TABLE)
    found = charge(searching, began, full, TABLE)
    assert (found.cost_picousd, found.flags) == (full.cost_picousd, ("estimated", "cut_off"))
    assert found.tokens.prompt == full.tokens.prompt
    ended = msgspec.structs.replace(began, only_began=False, has_output=True)
    assert charge(searching, ended, full, TABLE).tokens == ended.tokens
    plain = charge(CALL, began, bound(CALL, TABLE), TABLE)
    assert (plain.tokens.input, plain.tokens.cache_read) == (9, 7)


def test_what_is_embedded_gives_nothing_and_may_be_longer_than_one_context() -> None:
    many = ModelCall(
        api="embeddings",
        model="text-embedding-3-small",
        body_bytes=10**6,
        writes_cache=False,
        writes_long_cache=False,
    )
    found = bound(many, TABLE)
    assert found.tokens == Tokens(input=10**6 + ADDED_TOKENS)
    assert charge(
        many, Usage(has_input=True, tokens=Tokens(input=5)), found, TABLE
    ).tokens == Tokens(input=5)


def test_several_prompts_are_each_as_long_as_the_context_at_most() -> None:
    assert bound(change(body_bytes=10**9, choices=3), TABLE).tokens.input == 600_000


models = st.sampled_from([*TABLE.models, "unknown"])
calls = st.builds(
    ModelCall, api=st.just("chat"), model=models, body_bytes=st.integers(0, 10**6),
    max_output_tokens=st.none() | st.integers(1, 10**5),
    choices=st.integers(1, 3), beyond_body=st.booleans(), steps=st.integers(1, 20),
    writes_cache=st.just(True), writes_long_cache=st.just(True), tier=st.sampled_from(TIERS),
    regional=st.booleans(), shows_output=st.booleans(),
)  # fmt: skip


@given(calls, st.data())
def test_no_honest_answer_costs_more_than_was_reserved(
    call: ModelCall, data: st.DataObject
) -> None:
    reserved = bound(call, TABLE)
    prompt = reserved.tokens.prompt
    parts = [data.draw(st.integers(0, prompt // 4)) for _ in range(4)]
    tokens = Tokens(
        input=parts[0],
        cache_read=parts[1],
        cache_write=parts[2],
        cache_write_long=parts[3],
        output=data.draw(st.integers(0, reserved.tokens.output)),
    )
    usage = Usage(
        tokens=tokens,
        model=call.model,
        has_input=data.draw(st.booleans()),
        has_output=data.draw(st.booleans()),
        only_began=data.draw(st.booleans()),
        content_bytes=data.draw(st.integers(0, 10**6)),
    )
    if not usage.has_input:
        usage = Usage(
            tokens=Tokens(output=tokens.output),
            has_output=usage.has_output,
            content_bytes=usage.content_bytes,
        )
    found = charge(call, usage, reserved, TABLE)
    assert found.cost_picousd <= reserved.cost_picousd
    assert found.tokens.total <= reserved.tokens.total


@pytest.mark.parametrize("has_input", [True, False])
def test_an_answer_that_is_missing_costs_no_less_than_what_was_said(has_input: bool) -> None:
    said = Usage(tokens=Tokens(input=10**7, output=10**6), has_input=has_input, content_bytes=1)
    assert charge(CALL, said, bound(CALL, TABLE), TABLE).tokens == said.tokens
