"""The inbox as a list and a card: found, selected, answered many at once, on a wide page and a
narrow one."""

import re

import pytest
from playwright.async_api import BrowserContext, Locator, Page, expect

from supervisor.core.actions import Exec, Git, Network
from supervisor.core.approvals import Request, status
from supervisor.gate.gate import Refused
from tests.browser.conftest import PATIENCE_S, opened
from tests.browser.inbox import (
    approve,
    approve_button,
    card_of,
    find_row,
    row_of,
    rows,
    select_alike,
    settled_card,
    settled_on,
    shown_card,
    steady,
)
from tests.browser.operator_site import Site

PHONE = {"width": 390, "height": 780}


def connect(site: Site, host: str, hold_s: float = 600.0, session_id: str = "one") -> Request:
    action = Network(operation="connect", host=host, port=443)
    return site.ask(action, origin="egress", hold_s=hold_s, session_id=session_id)


def push(site: Site, branch: str, *, force: bool = False) -> Request:
    return site.ask(Git(operation="push", remote="origin", refspecs=(branch,), force=force))


def states(site: Site, requests: list[Request]) -> set[str]:
    return {status(site.parts.queue.get(one.id)) for one in requests}


async def order(page: Page, *requests: Request) -> None:
    await expect(rows(page)).to_have_count(len(requests))
    for at, request in enumerate(requests):
        await expect(rows(page).nth(at)).to_have_attribute("data-row", request.id)


async def test_rows_stand_by_session_and_what_is_held_first(site: Site, page: Page) -> None:
    first, second = (site.ask(Exec(command=f"make {name}")) for name in ("one", "two"))
    other = site.ask(Exec(command="make other"), session_id="two")
    await order(page, first, second, other)
    held = connect(site, "a.example.org", session_id="two")
    await order(page, held, other, first, second)
    await expect(page.locator("#sums")).to_contain_text("4 wait · 1 is held")
    groups = page.locator("[data-group]")
    await expect(groups).to_have_count(2)
    await expect(groups.first).to_have_attribute("data-group", "two")
    await expect(groups.first.locator(".group-head")).to_contain_text(
        re.compile(r"\d+m \d\ds left")
    )
    left = row_of(page, held).locator(".countdown [data-until]")
    await expect(left).to_have_text(re.compile(r"^\d+m \d\ds left$"))
    before = await left.text_content()
    await expect(left).not_to_have_text(before or "")
    # The card stays the one that was looked at.
    await expect(shown_card(page, first)).to_be_visible()


@pytest.mark.many
async def test_the_search_and_the_filters_keep_what_fits(site: Site, page: Page) -> None:
    command = site.ask(Exec(command="make docs"), reason="the handbook")
    other = site.ask(Exec(command="make all"), session_id="two")
    network = connect(site, "docs.example.org")
    forced = push(site, "main", force=True)
    await order(page, network, command, forced, other)
    await page.get_by_label("Flagged 1").check()
    await order(page, forced)
    await expect(page.get_by_label("Flagged 1")).to_be_focused()
    # What comes meanwhile and doesn't fit isn't shown.
    later = site.ask(Exec(command="make later"))
    await expect(page.locator("#sums")).to_contain_text("5 wait")
    await order(page, forced)
    await page.get_by_label("Commands 3").check()
    await order(page, command, later, other)
    await page.get_by_label("All 5").check()
    await page.keyboard.press("/")
    find = page.get_by_label("Search the inbox")
    await expect(find).to_be_focused()
    await page.keyboard.type("DOCS")
    await order(page, network, command)
    await page.keyboard.type(" handb")
    await order(page, command)
    await page.keyboard.type("zzz")
    await expect(rows(page)).to_have_count(0)
    await page.get_by_role("button", name="Show all 5").click()
    await order(page, network, command, forced, later, other)
    assert await find.input_value() == ""
    assert states(site, [command, other, network, forced, later]) == {"pending"}
    # One session's, by a control, and by an address that the Sessions page leads to.
    await page.get_by_label("Session", exact=True).focus()
    await page.get_by_label("Session", exact=True).select_option("two")
    await order(page, other)
    await expect(page.get_by_label("All 1")).to_be_checked()
    await expect(page.get_by_label("Session", exact=True)).to_be_focused()
    sessions = await opened(page.context, site, "/sessions")
    await sessions.get_by_role("link", name="4 wait").click()
    await order(sessions, network, command, forced, later)
    await expect(sessions.locator("#live")).to_have_attribute("data-state", "on")
    await expect(sessions.get_by_label("All 4")).to_be_checked()
    await sessions.get_by_label("Git 1").check()
    await expect(sessions).to_have_url(re.compile(r"/\?show=git&session=one$"))
    await sessions.reload()
    await order(sessions, forced)
    await expect(sessions.locator("#live")).to_have_attribute("data-state", "on")
    await sessions.get_by_label("Session", exact=True).select_option("")
    await sessions.get_by_label("All 5").check()
    await expect(sessions).to_have_url(f"{site.url}/")


async def test_what_is_new_waits_while_the_pointer_is_in_the_list(site: Site, page: Page) -> None:
    first, second = (site.ask(Exec(command=f"make {name}")) for name in ("one", "two"))
    await order(page, first, second)
    row = row_of(page, second)
    await row.hover()
    was = await row.bounding_box()
    news = page.locator("#news")
    held = connect(site, "a.example.org")
    await expect(news).to_have_text("1 new: show")
    site.parts.gate.resolve(first.id, "denied", by="operator (cli)")
    await expect(row_of(page, first)).to_have_attribute("data-state", "denied")
    push(site, "main")
    await expect(news).to_have_text("2 new: show")
    await expect(row_of(page, held)).to_have_count(0)
    now = await row.bounding_box()
    assert was is not None
    assert now is not None
    assert now["x"] == was["x"]
    await news.click()
    await expect(rows(page)).to_have_count(3)
    await expect(rows(page).first).to_have_attribute("data-row", held.id)
    await expect(news).to_be_hidden()


async def test_what_is_new_waits_while_the_keyboard_is_in_the_list(site: Site, page: Page) -> None:
    first = site.ask(Exec(command="make one"))
    link = row_of(page, first).locator("[data-open]")
    await link.focus()
    held = connect(site, "a.example.org")
    await expect(page.locator("#news")).to_have_text("1 new: show")
    site.ask(Exec(command="make one"))  # asked again: the row itself reads differently now
    await expect(row_of(page, first)).to_contain_text("asked 2 times")
    await expect(link).to_be_focused()
    await expect(row_of(page, held)).to_have_count(0)


@pytest.mark.many
async def test_rows_are_selected_by_keys_and_pointer(site: Site, page: Page) -> None:
    asked = [site.ask(Exec(command=f"make {n}")) for n in range(6)]
    await order(page, *asked)
    batch = page.locator("#pane[data-batch]")
    actions = batch.locator("[data-role=action]")
    keys = page.keyboard
    await keys.press("x")
    await expect(actions).to_have_text(["make 0"])
    await keys.press("j")
    await settled_on(page, asked[1])
    await keys.press("x")
    await expect(actions).to_have_text(["make 0", "make 1"])
    await expect(row_of(page, asked[1]).get_by_role("checkbox")).to_be_checked()
    await row_of(page, asked[4]).locator("[data-open]").click(modifiers=["Shift"])
    await expect(actions).to_have_text([f"make {n}" for n in range(5)])
    await row_of(page, asked[2]).get_by_role("checkbox").uncheck()
    await expect(actions).to_have_text([f"make {n}" for n in (0, 1, 3, 4)])
    # Another's card can be looked at meanwhile: the selection stays.
    await row_of(page, asked[5]).locator("[data-open]").click()
    await expect(shown_card(page, asked[5])).to_be_visible()
    await expect(page.locator("#inbox-list input:checked[name=row]")).to_have_count(4)
    await keys.press("Escape")
    await expect(page.locator("#inbox-list input:checked[name=row]")).to_have_count(0)
    await expect(batch).to_have_count(0)
    assert states(site, asked) == {"pending"}


async def test_thirty_alike_take_two_keys(site: Site, page: Page) -> None:
    asked = [site.ask(Exec(command=f"make {n}")) for n in range(30)]
    other = connect(site, "a.example.org")
    await expect(rows(page)).to_have_count(31)
    await steady(await card_of(page, asked[0]))
    await page.keyboard.press("X")
    batch = page.locator("#pane[data-batch]")
    await expect(batch.locator("#card-title")).to_have_text("30 requests")
    await steady(batch)
    await page.keyboard.press("a")
    for request in asked:
        assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")
    # On to the one that was left, with nothing selected any more.
    await settled_on(page, other)
    await order(page, other)
    await expect(page.locator("#inbox-list input:checked[name=row]")).to_have_count(0)
    assert states(site, [other]) == {"pending"}


@pytest.mark.many
async def test_what_is_flagged_is_left_out_and_shown(site: Site, page: Page) -> None:
    plain = [push(site, name) for name in ("one", "two")]
    forced = push(site, "main", force=True)
    await order(page, *plain, forced)
    await steady(await card_of(page, plain[0]))
    await select_alike(page, 2)  # all alike are those that may be answered together
    await row_of(page, forced).get_by_role("checkbox").check()
    batch = page.locator("#pane[data-batch]")
    left_out = batch.get_by_role("region", name="1 left out")
    await expect(left_out).to_contain_text("git push origin main (forces)")
    await expect(left_out).to_contain_text("forces")
    await expect(batch.locator("form")).to_contain_text("1 of the 3 selected go on waiting.")
    await steady(batch)
    await batch.get_by_role("button", name="Approve 2").click()
    for request in plain:
        assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) == "approved"
    await expect(shown_card(page, forced)).to_be_visible()
    assert states(site, [forced]) == {"pending"}


@pytest.mark.many
async def test_one_rule_is_offered_for_many(site: Site, page: Page) -> None:
    asked = [connect(site, f"{name}.example.org") for name in ("a", "b", "c")]
    await order(page, *asked)
    await steady(await card_of(page, asked[0]))
    batch = await select_alike(page, 3)
    await expect(batch.locator(".notice")).to_contain_text("One rule instead of 3 answers?")
    await expect(batch.locator(".notice code")).to_have_text("network(*.example.org)")
    await batch.get_by_role("link", name="Look at the rule").click()
    form = shown_card(page, asked[0]).locator("form.always-form")
    await expect(form).to_be_visible()
    await form.locator("label", has_text="network(*.example.org)").click()
    await steady(shown_card(page, asked[0]))
    await form.get_by_role("button", name="Save rule and approve").click()
    for request in asked:
        assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) == "approved"


async def shut_card(site: Site, page: Page) -> tuple[Request, Locator]:
    """A card whose red flag is below its lower edge."""
    await page.set_viewport_size({"width": 1200, "height": 420})
    refspecs = tuple(f"branch-{n}-of-those-that-are-sent" for n in range(40))
    request = site.ask(Git(operation="push", remote="origin", refspecs=refspecs, force=True))
    card = await card_of(page, request)
    # Its text is long, and the first press shows all of it.
    while await card.locator("[data-folded]").count():
        await card.locator("[data-unfold]").first.click()
    await card.locator(".pane-scroll").evaluate("(one) => one.scrollTo(0, 0)")
    await steady(card)
    return request, card


async def test_approve_is_shut_until_what_is_flagged_was_in_view(site: Site, page: Page) -> None:
    request, card = await shut_card(site, page)
    button = approve_button(card)
    await expect(button).to_have_attribute("data-shut", "")
    await expect(card.get_by_text("Look at what is flagged first.")).to_be_visible()
    await page.keyboard.press("a")
    await expect(card.locator("[data-flagged]")).to_be_in_viewport(ratio=0.5)
    await expect(page.locator("#said")).to_have_text("Look at what is flagged first.")
    assert states(site, [request]) == {"pending"}
    # It was in view now: the next press is the person's answer.
    await expect(button).not_to_have_attribute("data-shut", "")
    await expect(card.get_by_text("Look at what is flagged first.")).to_be_hidden()
    await page.keyboard.press("a")
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) == "approved"


async def test_what_is_flagged_can_be_denied_unseen(site: Site, page: Page) -> None:
    request, _ = await shut_card(site, page)
    await page.keyboard.press("d")
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) == "denied"


@pytest.mark.many
async def test_back_leads_to_the_card_before(site: Site, page: Page) -> None:
    first, second, third = (site.ask(Exec(command=f"make {n}")) for n in range(3))
    await order(page, first, second, third)
    for request in (second, third):
        await card_of(page, request)
        await expect(page).to_have_url(f"{site.url}/requests/{request.id}")
    await page.go_back()
    await expect(shown_card(page, second)).to_be_visible()
    await page.go_back()
    await expect(shown_card(page, first)).to_be_visible()
    await expect(page).to_have_url(f"{site.url}/")
    await page.go_forward()
    await expect(shown_card(page, second)).to_be_visible()
    # Its address is that of the card for everybody.
    await page.reload()
    await expect(shown_card(page, second)).to_be_visible()
    await approve(page, second)
    assert status(await site.parts.gate.wait(second.id, PATIENCE_S)) in ("approved", "used")


async def test_a_narrow_page_shows_the_list_then_the_card(
    site: Site, context: BrowserContext
) -> None:
    first, second = (
        site.ask(Exec(command=f"make {name}"), reason="because " * 40) for name in ("one", "two")
    )
    page = await context.new_page()
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await page.goto(site.url)
    await page.wait_for_selector('#live[data-state="on"]')
    pane = page.locator("#pane")
    await order(page, first, second)
    await expect(rows(page).first).to_be_visible()
    await expect(pane).to_be_hidden()
    await row_of(page, first).locator("[data-open]").click()
    await expect(shown_card(page, first)).to_be_visible()
    await expect(page.locator("#inbox-list")).to_be_hidden()
    # The answer is at the page's lower edge, without scrolling.
    form = await pane.locator("form.answer").bounding_box()
    assert form is not None
    assert abs(form["y"] + form["height"] - PHONE["height"]) <= 1
    for button in ("Approve command", "Deny"):
        await expect(pane.get_by_role("button", name=button)).to_be_in_viewport(ratio=1)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    await approve(page, first)
    assert status(await site.parts.gate.wait(first.id, PATIENCE_S)) in ("approved", "used")
    await expect(shown_card(page, second)).to_be_visible()
    await page.go_back()
    await expect(row_of(page, second)).to_be_visible()
    await expect(pane).to_be_hidden()
    assert states(site, [second]) == {"pending"}


async def test_many_are_answered_on_a_narrow_page(site: Site, context: BrowserContext) -> None:
    asked = [site.ask(Exec(command=f"make {n}")) for n in range(3)]
    page = await context.new_page()
    await page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    await page.goto(site.url)
    await page.wait_for_selector('#live[data-state="on"]')
    await order(page, *asked)
    await page.get_by_role("button", name="Select").click()
    for request in asked[:2]:
        await row_of(page, request).get_by_role("checkbox").check()
    to_answer = page.get_by_role("button", name="Look at 2 and answer")
    await to_answer.click()
    batch = page.locator("#pane[data-batch]")
    await expect(batch.locator("[data-role=action]")).to_have_text(["make 0", "make 1"])
    await page.go_back()
    await expect(batch).to_be_hidden()
    await to_answer.click()
    await expect(batch.get_by_role("button", name="Approve 2")).to_be_in_viewport(ratio=1)
    await steady(batch)
    await batch.get_by_role("button", name="Approve 2").click()
    for request in asked[:2]:
        assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")
    await expect(shown_card(page, asked[2])).to_be_visible()
    assert states(site, asked[2:]) == {"pending"}


@pytest.mark.many
async def test_a_settled_card_shows_its_result(site: Site, page: Page) -> None:
    async def fail(request: Request) -> None:
        grant = site.parts.gate.claim(request.id, request.session_id)
        assert not isinstance(grant, Refused)
        grant.use(site.parts.queue.action_of(request))
        printed = "collecting\n<b>2 failed</b>, 1 passed\n"
        site.parts.gate.settle(grant, "done", {"exit_code": 1, "stdout": printed})

    site.parts.gate.handlers.on_ready("exec", "agent_tool", fail)
    bad = site.ask(Exec(command="pytest -q"), origin="agent_tool")
    good = site.ask(Exec(command="make"))
    await find_row(page, good)
    await approve(page, bad)
    await expect(shown_card(page, good)).to_be_visible()
    await expect(page.locator("#done")).to_contain_text("pytest -q")
    card = await settled_card(page, bad, "failed")
    await expect(card.locator(".state")).to_have_text("failed")
    await expect(card.locator("[data-role=said]")).to_contain_text("approved by operator (browser)")
    await expect(card).to_contain_text("exit code 1")
    await expect(card.locator("[data-role=printed]")).to_contain_text("<b>2 failed</b>, 1 passed")
    await expect(row_of(page, bad)).to_contain_text("exit code 1")
    await approve(page, good)
    card = await settled_card(page, good, "done")
    await expect(card.locator(".state")).to_have_text("done, exit code 0")


@pytest.mark.many
async def test_the_address_of_an_answered_request_shows_its_card(
    site: Site, context: BrowserContext
) -> None:
    request = site.ask(Exec(command="make"))
    site.parts.gate.resolve(request.id, "denied", by="operator (cli)", reason="not now")
    page = await opened(context, site, f"/requests/{request.id}")
    await expect(shown_card(page, request)).to_contain_text("denied by operator (cli): not now")
    await expect(approve_button(shown_card(page, request))).to_have_count(0)
