"""The price table: names, tiers, exact sums, and what is wrong with a file."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.models.model_calls import ModelCall, Tokens
from supervisor.core.models.prices import SERVER_STEPS, PriceTable, parse_prices
from supervisor.core.money import PICOUSD
from supervisor.errors import PolicyError
from tests.tables import each_row

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = parse_prices((ROOT / "policy/prices.yaml").read_text(), "policy/prices.yaml")
PLAIN = ModelCall(api="messages")
SMALL = """
version: 1
web_search: 10000
regional: 1.1
models:
  claude-sonnet-4-5: {input: 3, output: 15, cache_read: 0.30, cache_write: 3.75, cache_write_long: 6, context_tokens: 1000000, max_output_tokens: 64000,
    above: {tokens: 200000, input: 6, output: 22.5}}
  gpt-5: {input: 1.25, output: 10, cache_read: 0.125, context_tokens: 400000, max_output_tokens: 128000, fast: 2}
"""  # noqa: E501


def test_a_build_that_costs_more_than_its_name_is_priced_by_itself() -> None:
    dated, named = SHIPPED.find("openai/gpt-4o-2024-05-13").price, SHIPPED.find("gpt-4o").price
    assert dated.rates.input > named.rates.input
    assert SHIPPED.find("gpt-4o-2024-08-06").price == named


def test_a_model_that_is_only_offered_as_a_preview_has_a_price() -> None:
    assert SHIPPED.find("google/gemini-3.1-pro-preview").is_known


def table(text: str = SMALL) -> PriceTable:
    return parse_prices(text, "prices.yaml")


@each_row(
    "name",
    [
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "Claude-Sonnet-4-5",
        "claude-sonnet-4-5@20250929",
        "claude-sonnet-4-5-latest",
        "claude-sonnet-4-5[1m]",
        "anthropic/claude-sonnet-4.5",
        "anthropic/claude-sonnet-4.5:nitro",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-sonnet-4-5-20250929-v1:0:200k",
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ],
)
def test_the_spellings_of_a_model(name: str) -> None:
    assert table().find(name) == (table().models["claude-sonnet-4-5"], True)


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-55",
        "gpt-5-pro",
        "claude-opus-9",
        "",
        "gpt-5x",
        "sonnet",
        "/",
        "gpt-5-20251",
    ],
)
def test_a_name_that_only_looks_alike_is_priced_highest(name: str) -> None:
    found = table().find(name)
    assert found == (table().highest, False)
    rates = found.price.rates
    assert (rates.input, rates.output, rates.cache_read) == (6_000_000, 22_500_000, 300_000)
    assert (found.price.context_tokens, found.price.max_output_tokens, found.price.fast) == (
        1_000_000,
        128_000,
        2000,
    )


def test_costs_are_exact() -> None:
    sonnet, gpt = table().models["claude-sonnet-4-5"], table().models["gpt-5"]
    tokens = Tokens(input=10, output=3, cache_read=7, cache_write=5, cache_write_long=2)
    # micro-dollars: 30 + 45 + 2.1 + 18.75 + 12
    assert table().cost_picousd(sonnet, tokens, PLAIN) == 107_850_000
    assert table().cost_picousd(gpt, Tokens(cache_read=1), PLAIN) == 125_000
    assert table().cost_picousd(gpt, Tokens(searches=3), PLAIN) == 3 * PICOUSD // 100


def test_a_long_prompt_makes_the_whole_call_dearer() -> None:
    sonnet = table().models["claude-sonnet-4-5"]
    assert (
        table().cost_picousd(sonnet, Tokens(input=200_000, output=1), PLAIN)
        == 200_000 * 3_000_000 + 15_000_000
    )
    assert (
        table().cost_picousd(sonnet, Tokens(input=200_000, cache_read=1, output=1), PLAIN)
        == 200_001 * 6_000_000 + 22_500_000
    )


def test_faster_and_regional_tiers() -> None:
    gpt, sonnet = table().models["gpt-5"], table().models["claude-sonnet-4-5"]
    one = Tokens(input=1)
    assert table().cost_picousd(gpt, one, ModelCall(api="chat", tier="fast")) == 2_500_000
    assert table().cost_picousd(gpt, one, ModelCall(api="chat", regional=True)) == 1_375_000
    # A tier that a model has no factor for costs the table's highest.
    assert table().cost_picousd(sonnet, one, ModelCall(api="messages", tier="fast")) == 6_000_000
    for tier in ("ultrafast", "unknown"):
        assert table().cost_picousd(gpt, one, ModelCall(api="chat", tier=tier)) == 2_500_000
    # $60 and $300 for a million: OpenAI's page of prices.
    astra = SHIPPED.find("gpt-6-astra").price
    each = Tokens(input=1, output=1)
    for tier, cost in (("plain", 60), ("fast", 120), ("ultrafast", 360)):
        assert (
            SHIPPED.cost_picousd(astra, each, ModelCall(api="responses", tier=tier)) == cost * 10**6
        )
    assert (
        SHIPPED.cost_picousd(
            SHIPPED.find("gpt-6-sol").price, each, ModelCall(api="chat", tier="unknown")
        )
        == 72 * 10**6
    )
    odd = parse_prices(
        "version: 1\nweb_search: 0\nregional: 1.001\nmodels: {m: {input: 0.000001, output: 1,"
        " context_tokens: 9, max_output_tokens: 9}}",
        "p",
    )
    assert (
        odd.cost_picousd(odd.models["m"], one, ModelCall(api="chat", regional=True)) == 2
    )  # 1.001 rounded up


@given(
    st.integers(0, 10**7),
    st.integers(0, 10**6),
    st.integers(0, 10**7),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_no_row_costs_more_than_the_highest_and_sums_are_those_of_decimals(
    i: int, o: int, r: int, w: int, long: int
) -> None:
    tokens = Tokens(input=i, output=o, cache_read=r, cache_write=w, cache_write_long=long)
    most = SHIPPED.cost_picousd(SHIPPED.highest, tokens, PLAIN)
    for price in SHIPPED.models.values():
        rates = (
            price.above
            if price.above and price.above_tokens and tokens.prompt > price.above_tokens
            else price.rates
        )
        dear = sum(Decimal(n) * Decimal(rate) / 10**12 for n, rate in [
            (i, rates.input), (o, rates.output), (r, rates.cache_read), (w, rates.cache_write),
            (long, rates.cache_write_long)
        ])  # fmt: skip
        cost = SHIPPED.cost_picousd(price, tokens, PLAIN)
        assert Decimal(cost) / 10**12 == dear
        # Who has no price for what is read from a cache reads none.
        assert cost <= most or rates.cache_read == rates.input


def test_the_shipped_table_has_the_models_that_agents_use() -> None:
    for name in (
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-4-5-20251001",
        "openai/gpt-5.4-mini",
        "gpt-5.3-codex",
        "openai/gpt-6.2-astra",
        "gpt-6.2-sol",
        "claude-fable-5-2",
        "text-embedding-3-small",
    ):
        assert SHIPPED.find(name).is_known
    for name, price in SHIPPED.models.items():
        assert price.rates.cache_read <= price.rates.input
        assert price.rates.input <= price.rates.output or "embedding" in name
        assert price.rates.cache_write <= price.rates.cache_write_long


def test_how_often_a_provider_goes_on_by_itself_may_be_said() -> None:
    assert (table().server_steps, SHIPPED.server_steps) == (SERVER_STEPS, SERVER_STEPS)
    assert table(f"server_steps: 3{SMALL}").server_steps == 3


def test_what_isnt_in_the_table_reads_its_cache_at_the_highest_price_that_is_one() -> None:
    """A row without that price, as those of the pro models, has no cache."""
    assert SHIPPED.highest.rates.cache_read == 2_000_000
    bare = table(f"version: 1\nweb_search: 1\nmodels: {{a: {ROW}}}")
    assert bare.highest.rates.cache_read == bare.highest.rates.input


def test_searches_by_the_older_tool() -> None:
    """$25 a thousand of models that don't reason, whatever they find being free, else $10:
    OpenAI's page of prices."""
    one = Tokens(searches=1)
    older = ModelCall(api="responses", previews=True)
    assert SHIPPED.cost_picousd(SHIPPED.find("gpt-4o").price, one, older) == PICOUSD * 25 // 1000
    assert SHIPPED.cost_picousd(SHIPPED.find("gpt-4o").price, one, PLAIN) == PICOUSD // 100
    assert SHIPPED.cost_picousd(SHIPPED.find("gpt-5").price, one, older) == PICOUSD // 100
    assert SHIPPED.cost_picousd(SHIPPED.highest, one, older) == PICOUSD * 25 // 1000


ROW = "{input: 1, output: 2, context_tokens: 10, max_output_tokens: 5}"


@each_row(
    ("text", "message"),
    [
        ("[]", "prices.yaml:1: the table is not a mapping"),
        ("", "prices.yaml: the table is not a mapping"),
        ("version: 2", "prices.yaml:1: `version` is not 1"),
        ("version: 1\nweb_search: 1\nmodels: {}", "no `models`"),
        ("version: 1\nmodel: {}", "unknown key `model` in the table; did you mean `models`?"),
        (f"version: 1\nmodels: {{a: {ROW}}}", "`web_search` is missing or not a number"),
        ("version: 1\nweb_search: 1\nmodels: {a: 1}", "`a` is not a mapping"),
        ("version: 1\nweb_search: 1\nmodels:\n  a: {output: 1}",
         "prices.yaml:4: `input` is missing"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: -1, output: 1}}",
         "`input` is missing or not"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: 0.0000001, output: 1}}",
         "`input` is missing or not"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: nan, output: 1}}",
         "`input` is missing or not"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: 1e99, output: 1}}",
         "`input` is missing or not"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: [1], output: 1}}",
         "`input` is missing or not"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: \uff11, output: 1}}",
         "`input` is missing or not"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: 1, output: 1, context_tokens: 0}}",
         "`context_tokens` is not between"),
        ("version: 1\nweb_search: 1\nmodels: {a: {input: 1, output: 1, context_tokens: 1, max_output_tokens: 1, fast: 0.5}}", "`fast` is not between"),  # noqa: E501
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_line(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        table(text)
    assert message in str(caught.value)
    assert caught.value.remedy
