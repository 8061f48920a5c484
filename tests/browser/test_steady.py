"""A card that changed a moment ago answers nothing, and says so: what was pressed then was meant
for what was there before."""

from typing import Any

import pytest
from playwright.async_api import Page, expect

from supervisor.core.actions import Exec
from supervisor.core.approvals import Request, status
from tests.browser.conftest import PATIENCE_S
from tests.browser.inbox import card_of, row_of, settled_on, shown_card, steady
from tests.browser.operator_site import Site
from tests.tables import share

# Presses as soon as a card is there that wasn't, or has the focus that hadn't: in the turn of its
# change, however slow the machine.
AT_ONCE = """([selector, how]) => new Promise((done) => {
    const press = {
        key: (card) => { card.focus(); card.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true })); },
        deny: (card) => { card.focus(); card.dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true })); },
        enter: (card) => card.querySelector('[data-key="a"]:not([hidden])').click(),
        click: (card) => card.querySelector('[data-key="a"]:not([hidden])').dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, detail: 1 })),
        tick: (card) => { card.focus(); card.dispatchEvent(new KeyboardEvent("keydown", { key: "1", bubbles: true })); },
    }[how];
    const look = () => {
        const card = document.querySelector(selector);
        if (!card) return;
        for (const one of seen) one();
        press(card);
        done(document.getElementById("quietly").textContent);
    };
    const watcher = new MutationObserver(look);
    watcher.observe(document.body, { childList: true, subtree: true });
    const seen = [() => watcher.disconnect(), () => document.removeEventListener("focusin", look)];
    document.addEventListener("focusin", look);
})"""  # fmt: skip  # noqa: E501
SAYS = "This changed a moment ago, so nothing was answered."


async def pressed_at_once(page: Page, selector: str, how: str) -> Any:
    """Begin to wait for the card; what comes of it is what the page said."""
    await page.evaluate(f"(wanted) => {{ window.said = ({AT_ONCE})(wanted); }}", [selector, how])


async def said(page: Page) -> str:
    text: str = await page.evaluate("window.said")
    return text


def is_pending(site: Site, request: Request) -> bool:
    return status(site.parts.queue.get(request.id)) == "pending"


@pytest.mark.parametrize("how", share(("key", "deny", "enter", "click"), "key", "click"))
async def test_a_card_that_just_arrived(site: Site, page: Page, how: str) -> None:
    await pressed_at_once(page, '#pane.card[data-status="pending"]', how)
    request = site.ask(Exec(command="make"))
    assert (await said(page)).startswith(SAYS)
    await expect(page.locator("#quietly")).to_be_visible()
    await shown_card(page, request).focus()
    await settled_on(page, request)
    assert is_pending(site, request)
    await page.keyboard.press("a")
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")


@pytest.mark.parametrize("how", share(("key", "deny", "enter", "click"), "key", "click"))
async def test_a_card_that_was_just_chosen(site: Site, page: Page, how: str) -> None:
    first, second = site.ask(Exec(command="make")), site.ask(Exec(command="make all"))
    await card_of(page, first)
    await expect(row_of(page, second)).to_be_visible()
    await pressed_at_once(page, f"#pane[data-request='{second.id}']", how)
    await page.keyboard.press("j")
    assert (await said(page)).startswith(SAYS)
    assert is_pending(site, first)
    assert is_pending(site, second)


async def test_several_that_were_just_selected(site: Site, page: Page) -> None:
    requests = [site.ask(Exec(command=f"make {name}")) for name in ("one", "two")]
    for one in requests:
        await expect(row_of(page, one)).to_be_visible()
    await pressed_at_once(page, "#pane[data-batch]", "key")
    await page.keyboard.press("X")
    assert (await said(page)).startswith(SAYS)
    await steady(page.locator("#pane[data-batch]"))
    assert all(is_pending(site, one) for one in requests)
    await page.keyboard.press("a")
    for one in requests:
        assert status(await site.parts.gate.wait(one.id, PATIENCE_S)) in ("approved", "used")


@pytest.mark.parametrize("how", share(("key", "deny", "enter", "click", "tick"), "deny", "tick"))
async def test_a_newer_version_in_the_place_of_the_selected_card(
    site: Site, page: Page, how: str
) -> None:
    text = [f"line {number}\n" for number in range(40)]
    old = "".join(text).encode()
    older = site.ask_change("a.txt", old, "".join(["a\n", *text[1:-1], "b\n"]).encode())
    card = await card_of(page, older)
    await expect(card.locator(".diff").first).to_be_visible()
    await card.focus()
    await settled_on(page, older)
    await pressed_at_once(
        page, f'#pane.card[data-status="pending"]:not([data-request="{older.id}"])', how
    )
    newer = site.ask_change("a.txt", old, "".join(["evil\n", *text[1:-1], "b\n"]).encode())
    assert (await said(page)).startswith(SAYS)
    shown = shown_card(page, newer)
    await expect(shown.locator("input[data-hunk]:checked")).to_have_count(2)
    await expect(shown.locator('[data-role="newer"]')).to_be_visible()
    assert is_pending(site, newer)


async def test_the_card_that_followed_by_itself(site: Site, page: Page) -> None:
    first, second = site.ask(Exec(command="make")), site.ask(Exec(command="make all"))
    await expect(row_of(page, second)).to_be_visible()
    await steady(await card_of(page, first))
    await pressed_at_once(page, f"#pane[data-request='{second.id}']:focus", "key")
    await page.keyboard.press("a")
    assert (await said(page)).startswith(SAYS)
    await settled_on(page, second)
    assert is_pending(site, second)
    await page.keyboard.press("a")
    assert status(await site.parts.gate.wait(second.id, PATIENCE_S)) in ("approved", "used")


async def test_a_text_that_was_just_unfolded(site: Site, page: Page) -> None:
    request = site.ask(Exec(command="make" + " x" * 2000))
    await steady(await card_of(page, request))
    await pressed_at_once(
        page, f"#pane[data-request='{request.id}']:not(:has([data-folded]))", "key"
    )
    await page.keyboard.press("a")
    assert (await said(page)).startswith(SAYS)
    assert is_pending(site, request)


async def test_a_page_that_was_just_opened(site: Site, page: Page) -> None:
    request = site.ask(Exec(command="make"))
    card = shown_card(page, request)
    await expect(card).to_be_visible()
    await page.reload()
    await expect(card).to_be_visible()
    # Whatever comes first: the card is steady, or it says that it isn't. It never answers unseen.
    assert (
        await card.get_attribute("data-settling") == "all"
        or await page.evaluate("performance.now()") > 1000
    )
    await card.focus()
    await settled_on(page, request)
    await page.keyboard.press("a")
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")
