"""The inbox without a mouse, and without a mouse that slips."""

from playwright.async_api import BrowserContext, Page, expect

from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import status
from tests.browser.conftest import PATIENCE_S, SHOWN, opened
from tests.browser.inbox import (
    approve_button,
    card_of,
    nothing_waits,
    reason_box,
    row_of,
    rows,
    settled_on,
    shown_card,
    steady,
)
from tests.browser.operator_site import Site


async def test_a_whole_run_by_keyboard(site: Site, page: Page) -> None:
    first, second, third, fourth = (site.ask(Exec(command=f"make {n}")) for n in range(4))
    await expect(rows(page)).to_have_count(4)
    keys = page.keyboard
    await keys.press("Tab")
    await expect(page.get_by_text("Skip to the content")).to_be_focused()
    await steady(shown_card(page, first))
    await keys.press("a")
    assert status(await site.parts.gate.wait(first.id, PATIENCE_S)) in ("approved", "used")
    await settled_on(page, second)
    await keys.press("d")
    assert status(await site.parts.gate.wait(second.id, PATIENCE_S)) == "denied"
    await settled_on(page, third)
    await keys.press("j")
    await settled_on(page, fourth)
    await keys.press("k")
    await settled_on(page, third)
    await keys.press("r")
    await keys.type("use ninja, a d j k x X")
    await keys.press("Enter")
    denied = await site.parts.gate.wait(third.id, PATIENCE_S)
    assert (status(denied), denied.answer_reason) == ("denied", "use ninja, a d j k x X")
    await settled_on(page, fourth)
    await keys.press("Shift+A")
    form = shown_card(page, fourth).locator("form.always-form")
    await expect(form.locator("input[name=rule]:checked")).to_be_focused()
    await keys.press("Escape")
    await expect(form).to_be_hidden()
    await expect(shown_card(page, fourth).locator("summary")).to_be_focused()
    await keys.press("Enter")
    await expect(form.locator("input[name=rule]:checked")).to_be_focused()
    await steady(shown_card(page, fourth))
    await keys.press("Enter")
    assert status(await site.parts.gate.wait(fourth.id, PATIENCE_S)) in ("approved", "used")
    await nothing_waits(page)
    await expect(page.locator("#said")).to_contain_text("Nothing else waits")


async def test_a_key_that_is_held_down_answers_one(site: Site, page: Page) -> None:
    requests = [site.ask(Exec(command=f"make {n}")) for n in range(3)]
    await expect(rows(page)).to_have_count(3)
    await steady(await card_of(page, requests[0]))
    for _ in range(4):
        await page.keyboard.down("a")  # without `up` in between these are repeats
    await site.parts.gate.wait(requests[0].id, PATIENCE_S)
    await settled_on(page, requests[1])
    await page.keyboard.down("a")
    await page.evaluate(SHOWN)
    assert {status(site.parts.queue.get(one.id)) for one in requests[1:]} == {"pending"}


async def test_keys_do_nothing_without_a_card_in_a_field_or_with_a_modifier(
    site: Site, page: Page
) -> None:
    for key in "adrAmg1xXj":
        await page.keyboard.press(key)
    request = site.ask(Exec(command="make"))
    await steady(shown_card(page, request))
    for key in ("Control+a", "Alt+d", "Meta+a", "1", "g", "m"):
        await page.keyboard.press(key)
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search the inbox")).to_be_focused()
    await page.keyboard.type("make ad")
    await page.keyboard.press("Enter")
    assert await page.get_by_label("Search the inbox").input_value() == "make ad"
    assert status(site.parts.queue.get(request.id)) == "pending"


async def test_what_comes_under_the_pointer_takes_no_click(site: Site, page: Page) -> None:
    requests = [site.ask(Exec(command=f"make {n}")) for n in range(2)]
    await expect(rows(page)).to_have_count(2)
    card = await card_of(page, requests[0])
    await steady(card)
    await approve_button(card).hover()
    # The first card is answered: the second comes in its place, with its button under the pointer.
    await page.evaluate(
        """(id) => { window.wasGuarded = new Promise((done) => {
            new MutationObserver((_, watcher) => {
                const button = document.querySelector(`#pane[data-request="${id}"] [data-key="a"]`);
                if (!button) return;
                watcher.disconnect();
                done(getComputedStyle(button).pointerEvents === "none");
            }).observe(document.body, { childList: true, subtree: true });
        }); }""",
        requests[1].id,
    )
    await page.keyboard.press("d")
    assert await page.evaluate("window.wasGuarded")
    await steady(shown_card(page, requests[1]))
    assert status(site.parts.queue.get(requests[1].id)) == "pending"
    await page.mouse.down()
    await page.mouse.up()
    assert status(await site.parts.gate.wait(requests[1].id, PATIENCE_S)) in ("approved", "used")


async def test_a_new_request_takes_neither_the_focus_nor_the_place(site: Site, page: Page) -> None:
    first = site.ask(Network(operation="connect", host="a.example.org", port=443))
    box = reason_box(await card_of(page, first))
    await box.fill("half a sen")
    later = site.ask(Network(operation="connect", host="b.example.org", port=443))
    await expect(row_of(page, later)).to_be_visible()
    await expect(box).to_be_focused()
    assert await box.input_value() == "half a sen"
    await expect(rows(page).last).to_have_attribute("data-row", later.id)
    await expect(page.locator("#said")).to_have_text("A network request waits")


async def test_every_control_has_a_name(site: Site, page: Page, context: BrowserContext) -> None:
    for name in ("make", "make deploy"):
        site.ask(Exec(command=name))
    site.parts.policies.add_rule("allow", "network(*.example.org)", why="", by="test")
    for path in ("/", "/sessions", "/sessions/one", "/rules", "/history"):
        shown = await opened(context, site, path)
        nameless = await shown.evaluate(
            """() => [...document.querySelectorAll("button, a, input:not([type=hidden]), select, [tabindex='0']")]
                .filter((one) => one.checkVisibility() && !(one.innerText || one.ariaLabel || one.title
                    || (one.labels && one.labels.length) || one.getAttribute("aria-labelledby")))
                .map((one) => one.outerHTML.slice(0, 120))"""  # noqa: E501
        )
        assert nameless == [], path
        await shown.close()
