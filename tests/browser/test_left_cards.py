"""Cards that nobody waits for any more stand behind those that somebody waits for; what a person
is in isn't moved away."""

import pytest
from playwright.async_api import Page, expect

from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import Request
from tests.browser.operator_site import Site

# Longer than it takes to look at the page before.
HOLD_S = 4.0


def ask(site: Site, host: str, hold_s: float = 600.0) -> Request:
    action = Network(operation="connect", host=f"{host}.example.org", port=443)
    return site.ask(action, origin="egress", hold_s=hold_s)


async def stand(page: Page, *requests: Request) -> None:
    """In this order, which is that of the keyboard."""
    await expect(page.locator('#cards [data-category="network"] .card')).to_have_count(
        len(requests)
    )
    for at, request in enumerate(requests):
        await expect(page.locator('#cards [data-category="network"] .card').nth(at)).to_have_id(
            f"request-{request.id}"
        )


async def test_cards_that_somebody_waits_for_come_first(site: Site, page: Page) -> None:
    first, second = ask(site, "one", HOLD_S), ask(site, "two", HOLD_S)
    third, fourth = ask(site, "three"), ask(site, "four")
    other = site.ask(Exec(command="make"))
    await stand(page, first, second, third, fourth)
    await expect(page.locator(f"#request-{first.id}")).to_contain_text("stopped waiting")
    await stand(page, third, fourth, first, second)
    fifth = ask(site, "five")
    await stand(page, third, fourth, fifth, first, second)
    for request in (other, third, fourth, fifth, first, second):
        await page.keyboard.press("j")
        await expect(page.locator(f"#request-{request.id}")).to_be_focused()
    await page.reload()
    await stand(page, third, fourth, fifth, first, second)
    known = [
        one.id for one in site.parts.queue.pending_but([], limit=9, now=site.parts.clock.now())
    ]
    assert known == [one.id for one in (third, fourth, other, fifth, first, second)]
    # The client tried again, and is held once more.
    ask(site, "one")
    await stand(page, first, third, fourth, fifth, second)


@pytest.mark.many
async def test_the_one_in_hand_stays_until_it_isnt_any_more(site: Site, page: Page) -> None:
    for n in range(12):
        ask(site, f"before-{n}", HOLD_S if n % 2 else 600.0)
    left, stays = ask(site, "left", HOLD_S), ask(site, "stays")
    card = page.locator(f"#request-{left.id}")
    await card.locator("[data-key=r]").fill("because")
    top = await card.evaluate("(one) => one.getBoundingClientRect().top")
    await expect(page.locator("#cards .card").nth(5)).to_contain_text("before-10")
    await expect(card).to_contain_text("stopped waiting")
    assert abs(await card.evaluate("(one) => one.getBoundingClientRect().top") - top) < 2
    before = "(one, id) => Boolean(one.compareDocumentPosition(document.getElementById(id)) & 4)"
    assert await card.evaluate(before, f"request-{stays.id}")
    await page.locator(f"#request-{stays.id}").focus()
    await expect(page.locator("#cards .card").last).to_have_id(f"request-{left.id}")
    assert await card.locator("[data-key=r]").input_value() == "because"
