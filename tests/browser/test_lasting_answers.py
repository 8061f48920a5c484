"""Answers that last (15 minutes, this session, always), the countdown of a held request, and
what is asked without a card."""

import asyncio
import re

import pytest
from playwright.async_api import BrowserContext, Locator, Page, expect

from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import Request, status
from supervisor.core.policy import repeats
from supervisor.core.verdicts import Rule
from supervisor.gate.gate import Refused
from supervisor.gate.repeats import MOST_CONNECTIONS
from tests.browser.conftest import PATIENCE_S, opened
from tests.browser.inbox import (
    always_form,
    approve_button,
    card_of,
    deny,
    row_of,
    rows,
    shown_card,
    steady,
)
from tests.browser.operator_site import Site
from tests.tables import share

# How it is called -> the effect, and what is chosen in the menu.
LASTING = {
    "15 minutes": ("allow", "15 min"),
    "this session": ("allow", "this session"),
    "always": ("allow", "always"),
    "no for 15 minutes": ("deny", "15 min"),
    "no for this session": ("deny", "this session"),
    "never": ("deny", "always"),
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


@pytest.mark.parametrize(
    "key", [True, pytest.param(False, marks=pytest.mark.many)], ids=["by key", "by mouse"]
)
@pytest.mark.parametrize("how_long", share(LASTING, "15 minutes", "never", "always"))
async def test_an_answer_lasts_as_long_as_was_said(
    site: Site, page: Page, how_long: str, key: bool
) -> None:
    effect, lasting = LASTING[how_long]
    request = site.ask(connect("api.example.org"), origin="egress", hold_s=600)
    shown = await card_of(page, request)
    save = f"Save rule and {'approve' if effect == 'allow' else 'deny'}"
    if key:
        await steady(shown)
        await by_keyboard(page, shown, effect, lasting)
    else:
        form = await always_form(shown)
        if effect == "deny":
            await form.get_by_text("Deny", exact=True).click()
        await expect(form.get_by_role("button", name=save)).to_be_visible()
        await form.get_by_text(lasting, exact=True).click()
    form = shown.locator("form.always-form")
    await expect(form).to_contain_text("no earlier network request to compare with")
    await expect(form.get_by_label(lasting, exact=True)).to_be_checked()
    await expect(form.get_by_role("button", name=save)).to_be_visible()
    await steady(shown)
    if key:
        await page.keyboard.press("Enter")
    else:
        await form.get_by_role("button", name=save).click()
    assert await answered(site, request) == ("approved" if effect == "allow" else "denied")
    rule = saved(site)
    assert (rule.effect, rule.text) == (effect, "network(*.example.org)")
    expected = "always" if how_long == "never" else how_long.removeprefix("no for ")
    assert lasts(site, rule) == expected


async def by_keyboard(page: Page, card: Locator, effect: str, lasting: str) -> None:
    """Choose in the menu, with nothing but keys."""
    keys = page.keyboard
    await keys.press("Shift+A")
    form = card.locator("form.always-form")
    await expect(form.locator("input[name=rule]:checked")).to_be_focused()
    # Escape changes nothing, and gives the focus back to where it was.
    await keys.press("Escape")
    await expect(card.locator("summary")).to_be_focused()
    await keys.press("Enter")
    await expect(form.locator("input[name=rule]:checked")).to_be_focused()
    if effect == "deny":
        await keys.press("Shift+Tab")
        await keys.press("ArrowRight")
        await expect(form.get_by_role("button", name="Save rule and deny")).to_be_visible()
        await expect(form.locator("input[name=effect]:checked")).to_be_focused()
    while await page.evaluate("document.activeElement.name") != "lasts":
        await keys.press("Tab")
    while not await form.get_by_label(lasting, exact=True).is_checked():
        await keys.press("ArrowRight")


@pytest.mark.many
async def test_how_long_can_be_changed_before_it_is_saved(site: Site, page: Page) -> None:
    request = site.ask(Exec(command="make docs"))
    form = await always_form(await card_of(page, request))
    await form.get_by_label("this session", exact=True).check()
    await form.get_by_label("15 min", exact=True).check()
    await form.get_by_role("button", name="Save rule and approve").click()
    assert await answered(site, request) in ("approved", "used")
    (rule,) = [one for one in site.parts.policies.current().rules if one.text == "exec(make docs)"]
    assert lasts(site, rule) == "15 minutes"


@pytest.mark.many
async def test_the_rules_page_counts_down(site: Site, page: Page, context: BrowserContext) -> None:
    request = site.ask(connect("api.example.org"), origin="egress")
    form = await always_form(await card_of(page, request))
    await form.get_by_label("15 min", exact=True).check()
    await form.get_by_role("button", name="Save rule and approve").click()
    await expect(shown_card(page, request)).to_have_attribute("data-status", "approved")
    rules = await opened(context, site, "/rules")
    row = rules.locator("tr", has_text="network(*.example.org)")
    await expect(row).to_contain_text(re.compile(r"for another 1?\dm \d\ds"))
    first = await row.locator("[data-until]").text_content()
    await expect(row.locator("[data-until]")).not_to_have_text(first or "")


async def test_a_held_request_says_how_long_without_a_script_too(site: Site, page: Page) -> None:
    for host in ("a.example.org", "b.example.org"):
        site.ask(connect(host), origin="egress", hold_s=900)
    await expect(rows(page)).to_have_count(2)
    first = rows(page).first.locator(".countdown")
    await expect(first).to_have_text(re.compile(r"^1?\dm \d\ds left$"))
    before = await first.text_content()
    await expect(first).not_to_have_text(before or "")
    answer = await page.context.request.get(f"{site.url}/")
    # Both rows, and the card of the first.
    assert len(re.findall(r">1?\dm \d\ds left[<,]", await answer.text())) == 3


@pytest.mark.many
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
    await deny(page, first)
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
    await expect(row_of(page, again)).to_have_attribute("data-state", "waiting")


@pytest.mark.many
async def test_a_loop_over_hosts_is_one_line_below_the_list(site: Site, page: Page) -> None:
    gate = site.parts.gate
    held = [
        asyncio.ensure_future(
            gate.decide(connect(f"h{n}.example.net"), session_id="one", origin="egress", hold_s=900)
        )
        for n in range(MOST_CONNECTIONS + 7)
    ]
    try:
        await expect(rows(page)).to_have_count(MOST_CONNECTIONS)
        quiet = page.locator("#quiet")
        await expect(quiet).to_contain_text("This agent asks for 7 more")
        await quiet.locator("summary").click()
        await expect(quiet.locator("li")).to_have_count(7)
        card = page.locator("#pane[data-request]")
        await steady(card)
        await approve_button(card).click()
        await expect(quiet).to_contain_text("This agent asks for 6 more")
        await expect(quiet.locator("details")).to_have_attribute("open", "")
        await expect(rows(page)).to_have_count(MOST_CONNECTIONS)
        await quiet.get_by_role("button", name="Deny all 26 that are held").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#confirm-title")).to_have_text("Deny all 26 that are held?")
        await page.get_by_role("button", name="Deny all 26", exact=True).press("Enter")
        await expect(rows(page)).to_have_count(0)
        await expect(quiet).not_to_contain_text("This agent asks for")
        assert [isinstance(one, Refused) for one in await asyncio.gather(*held)].count(
            True
        ) == MOST_CONNECTIONS + 6
    finally:
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
