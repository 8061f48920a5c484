"""The inbox without a mouse, and without a mouse that slips."""

from playwright.async_api import BrowserContext, Page, expect

from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import Request, status
from tests.browser.conftest import PATIENCE_S, opened
from tests.browser.operator_site import Site


async def settled_on(page: Page, request: Request) -> None:
    """The focus is on this card, and keys count there."""
    await expect(page.locator(f"#request-{request.id}:not([data-settling])")).to_be_focused()


async def test_a_whole_run_by_keyboard(site: Site, page: Page) -> None:
    first, second, third, fourth = (site.ask(Exec(command=f"make {n}")) for n in range(4))
    await expect(page.locator(".card")).to_have_count(4)
    keys = page.keyboard
    await keys.press("Tab")
    await expect(page.get_by_text("Skip to the content")).to_be_focused()
    await keys.press("j")
    await settled_on(page, first)
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
    await keys.type("use ninja, a d j k")
    await keys.press("Enter")
    denied = await site.parts.gate.wait(third.id, PATIENCE_S)
    assert (status(denied), denied.answer_reason) == ("denied", "use ninja, a d j k")
    await settled_on(page, fourth)
    await keys.press("Shift+A")
    form = page.locator(f"#request-{fourth.id} form")
    await expect(form.locator("input[type=radio]:checked")).to_be_focused()
    await keys.press("Escape")
    await expect(form).to_have_count(0)
    await expect(page.get_by_role("button", name="Always allow…")).to_be_focused()
    await keys.press("Enter")
    await expect(form.locator("input[type=radio]:checked")).to_be_focused()
    await expect(page.locator(".card[data-settling]")).to_have_count(0)
    await keys.press("Enter")
    assert status(await site.parts.gate.wait(fourth.id, PATIENCE_S)) in ("approved", "used")
    await expect(page.locator("#nothing")).to_be_visible()
    await expect(page.locator("#said")).to_contain_text("Nothing else waits")


async def test_a_key_that_is_held_down_answers_one(site: Site, page: Page) -> None:
    requests = [site.ask(Exec(command=f"make {n}")) for n in range(3)]
    await expect(page.locator(".card")).to_have_count(3)
    await page.keyboard.press("j")
    await settled_on(page, requests[0])
    for _ in range(4):
        await page.keyboard.down("a")  # without `up` in between these are repeats
    await site.parts.gate.wait(requests[0].id, PATIENCE_S)
    await settled_on(page, requests[1])
    assert {status(site.parts.queue.get(one.id)) for one in requests[1:]} == {"pending"}


async def test_keys_do_nothing_without_a_card_or_with_a_modifier(site: Site, page: Page) -> None:
    request = site.ask(Exec(command="make"))
    await expect(page.locator(".card")).to_have_count(1)
    await page.keyboard.press("a")
    await page.keyboard.press("j")
    for key in ("Control+a", "Alt+d", "x"):
        await page.keyboard.press(key)
    assert status(site.parts.queue.get(request.id)) == "pending"


async def test_what_moves_under_the_pointer_takes_no_click(site: Site, page: Page) -> None:
    requests = [site.ask(Exec(command=f"make {n}")) for n in range(2)]
    await expect(page.locator(".card")).to_have_count(2)
    await (
        page.locator(f"#request-{requests[0].id}")
        .get_by_role("button", name="Approve", exact=True)
        .hover()
    )
    # The first card goes away: the second, as high as it, is where it was, with its button under
    # the pointer.
    was_guarded = await page.evaluate(
        """(id) => new Promise((done) => {
            new MutationObserver((_, watcher) => {
                watcher.disconnect();
                const button = document.querySelector('.card [data-key="a"]');
                done(document.body.classList.contains("moving") && getComputedStyle(button).pointerEvents === "none");
            }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
            document.getElementById(id).remove();
        })""",  # noqa: E501
        f"request-{requests[0].id}",
    )
    assert was_guarded
    await expect(page.locator("body")).not_to_have_class("moving")


async def test_a_new_card_takes_neither_the_focus_nor_the_place(site: Site, page: Page) -> None:
    first = site.ask(Network(operation="connect", host="a.example.org", port=443))
    box = page.locator(f"#request-{first.id}").get_by_label("Reason for denying")
    await box.fill("half a sen")
    later = site.ask(Network(operation="connect", host="b.example.org", port=443))
    await expect(page.locator(f"#request-{later.id}")).to_be_visible()
    await expect(box).to_be_focused()
    await expect(page.locator(".card").last).to_have_id(f"request-{later.id}")
    await expect(page.locator("#said")).to_have_text("A network request waits")


async def test_every_control_has_a_name(site: Site, page: Page, context: BrowserContext) -> None:
    site.ask(Exec(command="make"))
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
