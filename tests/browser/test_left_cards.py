"""What nobody waits for any more stands behind what somebody waits for; nothing moves under a
pointer."""

import pytest
from playwright.async_api import Page, expect

from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import Request
from tests.browser.inbox import card_of, reason_box, row_of, rows, shown_card
from tests.browser.operator_site import Site

# Longer than it takes to look at the page before.
HOLD_S = 4.0


def ask(site: Site, host: str, hold_s: float = 600.0) -> Request:
    action = Network(operation="connect", host=f"{host}.example.org", port=443)
    return site.ask(action, origin="egress", hold_s=hold_s)


async def stand(page: Page, *requests: Request) -> None:
    """In this order, which is that of the keyboard."""
    await expect(rows(page)).to_have_count(len(requests))
    for at, request in enumerate(requests):
        await expect(rows(page).nth(at)).to_have_attribute("data-row", request.id)


async def test_what_somebody_waits_for_comes_first(site: Site, page: Page) -> None:
    first, second = ask(site, "one", HOLD_S), ask(site, "two", HOLD_S)
    third, fourth = ask(site, "three"), ask(site, "four")
    other = site.ask(Exec(command="make"))
    await stand(page, first, second, third, fourth, other)
    await stand(page, third, fourth, other, first, second)
    await expect(row_of(page, first)).to_have_attribute("data-state", "waiting")
    await expect(shown_card(page, first)).to_contain_text("no longer held")
    fifth = ask(site, "five")
    await stand(page, third, fourth, fifth, other, first, second)
    for request in (second, third, fourth, fifth, other, first):
        await page.keyboard.press("j")
        await expect(shown_card(page, request)).to_be_focused()
    await page.reload()
    await stand(page, third, fourth, fifth, other, first, second)
    known = [
        one.id for one in site.parts.queue.pending_but([], limit=9, now=site.parts.clock.now())
    ]
    assert known == [one.id for one in (third, fourth, other, fifth, first, second)]
    # The client tried again, and is held once more.
    ask(site, "one")
    await stand(page, third, fourth, fifth, first, other, second)


@pytest.mark.many
async def test_the_most_urgent_session_comes_first(site: Site, page: Page) -> None:
    waits = site.ask(Exec(command="make"), session_id="one")
    held = site.ask(
        Network(operation="connect", host="a.example.org", port=443),
        origin="egress",
        hold_s=HOLD_S,
        session_id="two",
    )
    await stand(page, held, waits)
    await expect(row_of(page, held)).to_have_attribute("data-state", "held")
    await stand(page, waits, held)


@pytest.mark.many
async def test_the_one_in_hand_stays_until_it_isnt_any_more(site: Site, page: Page) -> None:
    left, stays = ask(site, "left", HOLD_S), ask(site, "stays")
    await stand(page, left, stays)
    card = await card_of(page, left)
    await reason_box(card).fill("because")
    row = row_of(page, left)
    await row.hover()
    await expect(row).to_have_attribute("data-state", "waiting")
    await stand(page, left, stays)
    await expect(card).to_contain_text("no longer held")
    await card.locator("#card-title").hover()
    ask(site, "later")
    await expect(rows(page).last).to_have_attribute("data-row", left.id)
    assert await reason_box(card).input_value() == "because"
    await expect(reason_box(card)).to_be_focused()
