"""Answers that last (15 minutes, this session, always), the countdown of a held request, and
what is asked without a card."""

import asyncio
import re

import pytest
from playwright.async_api import BrowserContext, Page, expect

from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import Request, status
from supervisor.core.policy import repeats
from supervisor.core.verdicts import Rule
from supervisor.gate.gate import Refused
from supervisor.gate.repeats import MOST_CONNECTIONS
from tests.browser.conftest import PATIENCE_S, opened
from tests.browser.operator_site import Site
from tests.tables import share

LASTING = {
    "15 minutes": ("t", "Allow for 15 min…", "allow"),
    "this session": ("s", "Allow for this session…", "allow"),
    "always": ("Shift+A", "Always allow…", "allow"),
    "no for 15 minutes": ("Shift+T", "Deny for 15 min…", "deny"),
    "no for this session": ("Shift+S", "Deny for this session…", "deny"),
    "never": ("Shift+D", "Always deny…", "deny"),
}


def connect(host: str) -> Network:
    return Network(operation="connect", host=host, port=443)


def saved(site: Site) -> Rule:
    (rule,) = [one for one in site.parts.policies.current().rules if one.category == "network"]
    return rule


def lasts(site: Site, rule: Rule) -> str:
    if rule.expires_at is not None:
        assert 0 < rule.expires_at - site.parts.clock.now() <= 900
        return "15 minutes"
    return "this session" if rule.session == "one" else "always"


async def answered(site: Site, request: Request) -> str:
    return status(await site.parts.gate.wait(request.id, PATIENCE_S))


@pytest.mark.parametrize("key", [True, False], ids=["by key", "by mouse"])
@pytest.mark.parametrize("how_long", share(LASTING, "15 minutes", "never", "always"))
async def test_an_answer_lasts_as_long_as_was_said(
    site: Site, page: Page, how_long: str, key: bool
) -> None:
    pressed, name, effect = LASTING[how_long]
    request = site.ask(connect("api.example.org"), origin="egress", hold_s=60)
    shown = page.locator(f"#request-{request.id}")
    button = shown.get_by_role("button", name=name, exact=True)
    if key:
        await shown.focus()
        await expect(page.locator(".card[data-settling]")).to_have_count(0)
        await page.keyboard.press(pressed)
    else:
        await button.click()
    form = shown.locator("form")
    await expect(form.locator("input[type=radio]:checked")).to_be_focused()
    await expect(form).to_contain_text("no earlier network request to compare with")
    if key:
        # Escape changes nothing, and gives the focus back to where it was.
        await page.keyboard.press("Escape")
        await expect(button).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(form.locator("input[type=radio]:checked")).to_be_focused()
    await expect(page.locator(".card[data-settling]")).to_have_count(0)
    await page.keyboard.press("Enter")
    assert await answered(site, request) == ("approved" if effect == "allow" else "denied")
    rule = saved(site)
    assert (rule.effect, rule.text) == (effect, "network(*.example.org)")
    expected = "15 minutes" if "15" in name else "this session" if "session" in name else "always"
    assert lasts(site, rule) == expected


async def test_how_long_can_be_changed_before_it_is_saved(site: Site, page: Page) -> None:
    request = site.ask(Exec(command="make docs"))
    shown = page.locator(f"#request-{request.id}")
    await shown.get_by_role("button", name="Allow for this session…").click()
    await shown.get_by_label("It holds").select_option("for 15 minutes")
    await shown.get_by_role("button", name="Save the rule and approve").click()
    assert await answered(site, request) in ("approved", "used")
    (rule,) = [one for one in site.parts.policies.current().rules if one.text == "exec(make docs)"]
    assert lasts(site, rule) == "15 minutes"


async def test_the_rules_page_counts_down(site: Site, page: Page, context: BrowserContext) -> None:
    site.ask(connect("api.example.org"), origin="egress")
    await page.locator(".card.network").focus()
    await expect(page.locator(".card[data-settling]")).to_have_count(0)
    await page.keyboard.press("t")
    await page.get_by_role("button", name="Save the rule and approve").click()
    await expect(page.locator(".card.network [data-role=status]")).to_have_text("approved")
    rules = await opened(context, site, "/rules")
    row = rules.locator("tr", has_text="network(*.example.org)")
    await expect(row).to_contain_text(re.compile(r"for another 1?\dm \d\ds"))
    first = await row.locator("[data-until]").text_content()
    await expect(row.locator("[data-until]")).not_to_have_text(first or "")


async def test_a_held_request_says_how_long_without_a_script_too(site: Site, page: Page) -> None:
    for host in ("a.example.org", "b.example.org"):
        site.ask(connect(host), origin="egress", hold_s=900)
    first = page.locator(".card.network .countdown").first
    await expect(first).to_have_text(re.compile(r"1?\dm \d\ds left to answer"))
    before = await first.text_content()
    await expect(first).not_to_have_text(before or "")
    answer = await page.context.request.get(f"{site.url}/")
    assert len(re.findall(r">1?\dm \d\ds left to answer<", await answer.text())) == 2


async def test_repeats_of_a_denial_are_listed_and_can_be_let_through(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        repeats, "BACK_OFF_S", (1800.0,)
    )  # a minute may be over before a slow page has shown it

    def search(query: str) -> Network:
        return Network(
            operation="request",
            host="api.example.org",
            port=443,
            scheme="https",
            method="GET",
            path=f"/s?q={query}",
        )

    first = site.ask(search("<b>1</b>"), origin="egress")
    await (
        page.locator(f"#request-{first.id}").get_by_role("button", name="Deny", exact=True).click()
    )
    assert await answered(site, first) == "denied"
    for number in range(3):
        assert status(site.ask(search(str(number)), origin="egress")) == "denied"
    quiet = page.locator("#quiet")
    await expect(quiet).to_contain_text("GET https://api.example.org/s?q=<b>1</b>")
    await expect(quiet).to_contain_text("asked 3 times since")
    await expect(quiet).to_contain_text(re.compile(r"may ask again in \d+m \d\ds"))
    await quiet.get_by_role("button", name="Let the agent ask again").click()
    await expect(quiet).not_to_contain_text("Denied again")
    again = site.ask(search("4"), origin="egress")
    await expect(page.locator(f"#request-{again.id}")).to_have_attribute("data-status", "pending")


@pytest.mark.many
async def test_a_loop_over_hosts_is_one_line_below_the_cards(site: Site, page: Page) -> None:
    gate = site.parts.gate
    held = [
        asyncio.ensure_future(
            gate.decide(connect(f"h{n}.example.net"), session_id="one", origin="egress", hold_s=900)
        )
        for n in range(MOST_CONNECTIONS + 7)
    ]
    try:
        await expect(page.locator('.card.network[data-status="pending"]')).to_have_count(
            MOST_CONNECTIONS
        )
        quiet = page.locator("#quiet")
        await expect(quiet).to_contain_text("This agent asks for 7 more")
        await quiet.locator("summary").click()
        await expect(quiet.locator("li")).to_have_count(7)
        await (
            page.locator(".card.network")
            .first.get_by_role("button", name="Approve", exact=True)
            .click()
        )
        await expect(quiet).to_contain_text("This agent asks for 6 more")
        await expect(quiet.locator("details")).to_have_attribute("open", "")
        await expect(page.locator('.card.network[data-status="pending"]')).to_have_count(
            MOST_CONNECTIONS
        )
        await quiet.get_by_role("button", name="Deny all 26 that are held").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#confirm-title")).to_have_text("Deny all 26 that are held?")
        await page.get_by_role("button", name="Deny all 26", exact=True).press("Enter")
        await expect(page.locator('.card.network[data-status="pending"]')).to_have_count(0)
        await expect(quiet).not_to_contain_text("This agent asks for")
        assert [isinstance(one, Refused) for one in await asyncio.gather(*held)].count(
            True
        ) == MOST_CONNECTIONS + 6
    finally:
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
