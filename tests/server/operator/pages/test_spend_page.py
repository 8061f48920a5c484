"""What models cost over time, on the Spend tab and as JSON: read from the ledger, bounded,
and the same after a restart."""

import html
import re
import secrets
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from supervisor.core.actions import BudgetRaise
from supervisor.core.budget import parse_budget
from supervisor.core.models.model_calls import Tokens
from supervisor.core.models.spend_chart import MOST_COLUMNS, OTHERS
from supervisor.core.money import PICOUSD
from supervisor.store import spending as store
from tests.fakes.parts import SECRET, FakeParts

DAY_S = 86400
TEN = Tokens(input=10)


def spend(
    parts: FakeParts,
    model: str,
    cost: int,
    *,
    ago_s: float = 0,
    session: str = "one",
    tokens: Tokens = TEN,
) -> None:
    """A call that was settled so long ago."""
    at = parts.clock.now() - ago_s
    with parts.engine.begin() as connection:
        store.add(
            connection, id=secrets.token_hex(8), session_id=session,
            day=datetime.fromtimestamp(at).astimezone().date().isoformat(),
            asked_at=at, host="h", call={}, model=model, reserved={}, cost=cost, tokens=tokens,
            bytes_out=1, flags=[], settled_at=at,
        )  # fmt: skip


async def test_the_sums_are_those_of_the_session_the_day_and_all(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    spend(parts, "model-a", 2 * PICOUSD)
    spend(parts, "model-b", PICOUSD, session="two")
    spend(parts, "model-a", 4 * PICOUSD, ago_s=3 * DAY_S, session="two")
    page = (await browser.get("/sessions/one/spend")).text
    assert re.findall(r'data-role="sum"><dt>([^<]*)</dt><dd>([^<]*)',
    page) == [
        ("this session", "$2.00"), ("today", "$3.00"), ("in total", "$7.00"),
    ]  # fmt: skip


@pytest.mark.parametrize(("span", "cost"), [("session", 2), ("day", 3), ("month", 7), ("all", 8)])
async def test_the_chart_is_of_the_time_that_was_chosen(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts, span: str, cost: int
) -> None:
    spend(parts, "model-a", 2 * PICOUSD)
    spend(parts, "model-b", PICOUSD, session="two")
    spend(parts, "model-a", 4 * PICOUSD, ago_s=3 * DAY_S, session="two")
    spend(parts, "model-a", PICOUSD, ago_s=90 * DAY_S, session="two")
    found = (await cli.get(f"/api/spend?session=one&span={span}")).json()
    assert (
        found["cost_microusd"]
        == cost * 10**6
        == sum(one["cost_microusd"] for one in found["times"])
    )
    assert sum(one["cost_microusd"] for one in found["models"]) == cost * 10**6
    assert len(found["times"]) <= MOST_COLUMNS
    page = (await browser.get(f"/parts/spend?session=one&span={span}")).text
    svg = ElementTree.fromstring(re.search(r'<svg class="chart".*?</svg>', page, re.DOTALL)[0])  # type: ignore[index]
    assert svg.attrib["role"] == "img"
    named = {one.attrib["id"]: one.text or "" for one in svg if "id" in one.attrib}
    assert set(svg.attrib["aria-labelledby"].split()) == set(named)
    assert f"${cost}.00" in named["chart-title"]
    assert "model-a" in named["chart-desc"]


async def test_the_table_has_each_kind_of_tokens(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    spend(
        parts, "model-a", 2 * PICOUSD,
        tokens=Tokens(input=1000, output=20, cache_read=3000, cache_write=40, cache_write_long=5,
        searches=9),
    )  # fmt: skip
    spend(parts, "model-a", PICOUSD, tokens=Tokens(input=234, output=1, cache_write=1))
    spend(parts, "model-b", PICOUSD, tokens=Tokens(output=7))
    page = (await browser.get("/sessions/one/spend")).text
    table = re.search(r'<table class="table stacks models.*?</table>', page, re.DOTALL)[0]  # type: ignore[index]
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', table)
    rows = [re.findall(r"<td[^>]*>([^<]*)", row) for row in table.split('data-role="model"')[1:]]
    assert [dict(zip(heads[1:], row, strict=True)) for row in rows] == [
        {"Cost": "$3.00", "Share": "75 %", "Calls": "2", "Input": "1,234", "Output": "21",
         "Cache read": "3,000", "Cache write": "46"},
        {"Cost": "$1.00", "Share": "25 %", "Calls": "1", "Input": "0", "Output": "7",
         "Cache read": "0", "Cache write": "0"},
    ]  # fmt: skip
    one, other = (await cli.get("/api/spend")).json()["models"]
    kinds = {
        "input_tokens": 1234,
        "output_tokens": 21,
        "cache_read_tokens": 3000,
        "cache_write_tokens": 46,
    }
    assert (
        one
        == {"model": "model-a", "calls": 2, "cost": "$3.00", "cost_microusd": 3 * 10**6}
        | {"tokens": 4301}
        | kinds
    )
    assert (other["tokens"], other["output_tokens"]) == (7, 7)
    shown = (await cli.get("/api/sessions/one")).json()["spend"]["models"][0]
    assert {key: shown[key] for key in kinds} == kinds
    line = re.search(
        r'data-role="spend-of-model">.*?</p>', (await browser.get("/sessions/one/spend")).text
    )[0]  # type: ignore[index]
    assert "1,234 tokens in, 3,000 from the cache, 46 into the cache, 21 out; 2 calls" in line


async def test_a_model_keeps_its_colour_and_shares_are_all_of_it(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    spend(parts, "model-first", PICOUSD, ago_s=60)
    spend(parts, "model-second", 2 * PICOUSD, ago_s=30)
    spend(parts, "model-third", PICOUSD // 1000)

    async def rows() -> dict[str, tuple[str, str]]:
        page = (await browser.get("/parts/spend?session=one&span=all")).text
        found = re.findall(
            r'data-role="model">.*?of-(\w+)".*?mono">([^<]*)</span>.*?data-label="Share">([^<]*)',
            page,
            re.DOTALL,
        )
        return {name: (mark, html.unescape(share)) for mark, name, share in found}

    assert await rows() == {
        "model-second": ("1", "67 %"), "model-first": ("0", "33 %"), "model-third": ("2", "<1 %")
    }  # fmt: skip
    spend(parts, "model-first", 2 * PICOUSD)
    found = await rows()
    assert next(iter(found)) == "model-first"
    assert {name: mark for name, (mark, _) in found.items()} == {
        "model-first": "0",
        "model-second": "1",
        "model-third": "2",
    }


async def test_however_long_the_history_and_however_many_the_models_the_chart_is_bounded(
    cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    for number in range(300):
        spend(parts, f"model-{number}", number * PICOUSD, ago_s=number * 20 * DAY_S)
    found = (await cli.get("/api/spend")).json()
    assert len(found["times"]) <= MOST_COLUMNS
    assert [one["model"] for one in found["models"]] == [
        *(f"model-{number}" for number in range(299, 294, -1)),
        OTHERS,
    ]
    assert found["cost_microusd"] == sum(range(300)) * 10**6
    times = [one["at"] for one in found["times"]]
    assert times == sorted(times)


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    first = FakeParts(tmp_path / "same")
    spend(first, "model-a", PICOUSD)
    first.close()
    again = FakeParts(tmp_path / "same")
    try:
        assert again.spending.standing().used["total"].cost == PICOUSD
        found = again.spending.over_time(
            since=0, width_s=None, models=5, others=OTHERS, session_id=None
        )
        assert [(one.model, one.cost) for one in found] == [("model-a", PICOUSD)]
    finally:
        again.close()


async def test_nothing_spent_is_said_and_a_limit_is_shown(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    parts.spending._fixed["day"] = parse_budget("10usd", "x")
    page = (await browser.get("/sessions/one/spend")).text
    assert "No model calls in this time" in page
    assert "$0.00 of $10.00" in page
    assert "near" not in page
    spend(parts, "model-a", 9 * PICOUSD)
    page = (await browser.get("/sessions/one/spend")).text
    assert 'class="limit near"' in page
    assert "$9.00 of $10.00 of the budget of this day are used or reserved" in page


async def test_what_a_call_would_pass_is_not_put_into_the_agents_mouth(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    action = BudgetRaise(scope="session", of="one", kind="cost", limit=5 * PICOUSD, by=PICOUSD)
    parts.gate.ask(action, session_id="one", reason="this call may cost $2.00", origin="egress")
    page = (await browser.get("/")).text
    assert "raise the budget of this session by $1.00 to $6.00" in page
    assert '<dt>Noticed</dt><dd data-role="reason">this call may cost $2.00</dd>' in page
    assert "agent says" not in page


async def test_a_models_name_is_text(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts
) -> None:
    spend(parts, f"<script>alert(1)</script>{SECRET}\u202e", PICOUSD)
    for text in (
        (await browser.get("/sessions/one/spend")).text,
        str((await cli.get("/api/spend")).json()),
    ):
        assert SECRET not in text
        assert "\u202e" not in text
    assert "<script>alert" not in (await browser.get("/sessions/one/spend")).text


async def test_what_isnt_there_is_refused(cli: httpx.AsyncClient) -> None:
    assert (await cli.get("/api/spend?session=none&span=session")).status_code == 404
    assert (await cli.get("/api/spend?span=century")).status_code == 400
