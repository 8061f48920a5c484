"""How a person reads a change: in colour, side by side, without white space, what lies between,
rendered Markdown, comments that go back with a denial; and 20,000 lines."""

import time

import pytest
from playwright.async_api import BrowserContext, Page, expect

from supervisor.core.approvals import status
from tests.browser.conftest import PATIENCE_S, opened
from tests.browser.inbox import (
    always_form,
    approve_button,
    card_of,
    deny_button,
    reason_box,
    shown_card,
    steady,
)
from tests.browser.operator_site import Site
from tests.tables import share

OLD = (
    'import os\n\ndef f():\n    """One.\n\n    def not_code():\n    """\n    return 1\n'
    + "".join(f"x{number} = {number}\n" for number in range(40))
    + "def g(a):\n  return a\n"
)
NEW = OLD.replace("return 1", "return 2").replace(
    "def g(a):\n  return a", "def g(a):\n    return a"
)


@pytest.mark.many
async def test_code_has_colours_that_know_what_stands_above(site: Site, page: Page) -> None:
    request = site.ask_change("a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, request)
    await expect(card.locator("tr.add .k").first).to_have_text("return")
    await expect(card.locator("tr.add ins .mi")).to_have_text("2")
    # Within a string nothing is a keyword, though the line looks like one.
    inside = card.locator("tr", has_text="def not_code")
    await expect(inside.locator(".k")).to_have_count(0)
    await expect(inside.locator(".sd")).to_have_count(1)


@pytest.mark.many
async def test_what_lies_between_is_shown_at_a_press(site: Site, page: Page) -> None:
    request = site.ask_change("a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, request)
    fold = card.get_by_role("button", name="Show 35 unchanged lines")
    await fold.click()
    row = card.locator("tr", has_text="x20 = 20")
    await expect(row.locator("td")).to_have_text(["29", "29", "", "x20 = 20"])
    await expect(row.locator(".mi")).to_have_text("20")
    await expect(card.get_by_text("unchanged lines")).to_have_count(1)  # above the first change


@pytest.mark.many
async def test_side_by_side_is_remembered_and_nothing_is_lost(
    site: Site, context: BrowserContext, page: Page
) -> None:
    request = site.ask_change("a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, request)
    await expect(card.locator("tr.add")).to_have_count(2)
    await card.get_by_text("Side by side").click()
    await expect(card.locator("table.side")).to_have_count(2)
    row = card.locator("tr", has_text="return 2")
    await expect(row.locator("td")).to_have_text(["8", "    return 1", "8", "    return 2"])
    other = await opened(context, site, f"/requests/{request.id}")
    await expect(shown_card(other, request).locator("table.side")).to_have_count(2)
    await other.set_viewport_size({"width": 390, "height": 800})
    await expect(shown_card(other, request).locator("table.side")).to_have_count(0)
    await card.get_by_text("Unified").click()
    await expect(card.locator("tr.add")).to_have_count(2)
    await expect(card.locator("tr.add", has_text="return 2").locator("ins")).to_have_text("2")


async def test_hidden_white_space_is_shown_before_it_is_approved(site: Site, page: Page) -> None:
    site.parts.gate.handlers.on_ready("filesystem", "agent_api", site._apply)
    request = site.ask_change("a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, request)
    removed = card.locator("tr.rem", has_text="return a")
    await expect(removed).to_be_visible()
    await card.get_by_label("Hide whitespace").check()
    await expect(removed).to_be_hidden()
    await expect(card.locator("tr.rem", has_text="return 1")).to_be_visible()
    await page.reload()
    await expect(removed).to_be_hidden()  # remembered
    await steady(card)
    await approve_button(card).click()
    await expect(page.locator("#quietly")).to_contain_text("Changes of white space were hidden")
    await expect(removed).to_be_visible()
    assert status(site.parts.queue.get(request.id)) == "pending"
    await steady(card)
    await approve_button(card).click()
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")


async def test_comments_go_to_the_agent_with_the_denial(
    site: Site, page: Page, context: BrowserContext
) -> None:
    request = site.ask_change("src/a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, request)
    await card.locator("tr.add .code", has_text="return 2").hover()
    await card.get_by_role("button", name="Comment on line 8", exact=True).click()
    await page.keyboard.type("rename <b>this</b>")
    await page.keyboard.press("Escape")
    # By keys alone: to a removed line.
    await card.locator("[data-say]").focus()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("c")
    await page.keyboard.type("why?")
    await expect(card.locator("[data-comments-on]")).to_have_text("2 comments go back with it")
    # They stay, also when what is shown moves to the other layout.
    await page.reload()
    await card.get_by_text("Side by side").click()
    await expect(card.get_by_label("Your comment on line 8, for the agent")).to_have_value(
        "rename <b>this</b>"
    )
    await card.get_by_text("Unified").click()
    await reason_box(card).fill("not yet")
    await steady(card)
    await deny_button(card).click()
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) == "denied"
    asked = site.parts.queue.get(request.id)
    assert asked.answer_reason == (
        "not yet\nsrc/a.py:8 before: why?\nsrc/a.py:8: rename <b>this</b>"
    )


async def test_a_newer_version_takes_the_comments_along(site: Site, page: Page) -> None:
    older = site.ask_change("a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, older)
    await steady(card)
    await card.locator("tr.add .code", has_text="return 2").hover()
    await card.locator(".add-say").click()
    field = card.get_by_label("Your comment on line 8, for the agent")
    await expect(field).to_be_focused()
    await field.press_sequentially("three, please")
    newer = site.ask_change("a.py", OLD.encode(), f"# new\n{NEW}".encode())
    # It stands at the line that it was written on, which is the ninth now.
    field = shown_card(page, newer).get_by_label("Your comment on line 9, for the agent")
    await expect(field).to_have_value("three, please")
    above = field.locator("xpath=ancestor::tr/preceding-sibling::tr[1]")
    await expect(above.locator(".code")).to_have_text("    return 2")


async def test_an_approval_asks_before_it_drops_comments(site: Site, page: Page) -> None:
    request = site.ask_change("a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, request)
    await card.locator("tr.add .code", has_text="return 2").hover()
    await card.locator(".add-say").click()
    await page.keyboard.type("three, please")
    await steady(card)
    await approve_button(card).click()
    dialog = page.get_by_role("dialog", name="Approve without your comments?")
    await dialog.get_by_role("button", name="Cancel").click()
    assert status(site.parts.queue.get(request.id)) == "pending"
    await approve_button(card).click()
    await dialog.get_by_role("button", name="Approve").click()
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) != "pending"


async def test_a_rule_never_approves_what_lost_its_tick_or_drops_comments(
    site: Site, page: Page
) -> None:
    request = site.ask_change("a.py", OLD.encode(), NEW.encode())
    card = await card_of(page, request)
    hunk = card.locator("input[data-hunk]").first
    await hunk.uncheck()
    form = await always_form(card)
    save = form.locator("[type=submit]")
    await expect(save).to_be_disabled()
    await expect(form).to_contain_text("A rule approves the whole change: tick all of it first.")
    await page.keyboard.press("Escape")
    await hunk.check()
    await expect(save).to_be_enabled()
    await card.locator("tr.add .code", has_text="return 2").hover()
    await card.locator(".add-say").click()
    await page.keyboard.type("three, please")
    await expect(save).to_be_disabled()
    await expect(form.locator("[data-role=always-shut]")).to_have_text(
        "Your comments don't go with a rule: remove them first, or deny with them."
    )
    assert status(site.parts.queue.get(request.id)) == "pending"


async def test_markdown_is_shown_rendered_and_loads_nothing(site: Site, page: Page) -> None:
    new = (
        b"# Head\n\n*soft* `code` [a](https://evil.example.org) ![i](https://evil.example.org/x.png)"
        b"\n\n<img src=https://evil.example.org/y.png>\n"
    )
    request = site.ask_change("docs/a.md", b"# Old\n", new)
    card = await card_of(page, request)
    await card.get_by_role("button", name="Rendered").click()
    await expect(card.locator(".prose h1")).to_have_text(["Old", "Head"])
    await expect(card.locator(".prose em")).to_have_text("soft")
    await expect(card.locator(".prose a, .prose img")).to_have_count(0)
    await expect(card.locator(".prose").last).to_contain_text("[a](https://evil.example.org)")


@pytest.mark.many
async def test_line_ends_and_a_missing_one_are_seen(site: Site, page: Page) -> None:
    every = site.ask_change("a.txt", b"a\r\nb\r\n", b"a\r\nc\r\n")
    site.parts.sessions.add("more")
    some = site.ask_change("b.txt", b"a\nb\n", b"a\r\nb", session_id="more")
    shown = await card_of(page, every)
    await expect(shown.get_by_text("CRLF", exact=True)).to_be_visible()
    await expect(shown.locator(".blanks")).to_have_count(0)
    shown = await card_of(page, some)
    await expect(shown.locator("tr.add", has_text="aCR").locator(".blanks")).to_have_text("CR")
    await expect(shown.locator("tr.note")).to_contain_text("no newline at the end of the file")


@pytest.mark.parametrize("path", share(["a.py", "a.svg", "a.md"], "a.py"))
async def test_hostile_text_is_text_in_any_language(site: Site, page: Page, path: str) -> None:
    text = (
        '<svg onload=window.owned=1><script>window.owned=1</script>"""</td></table>'
        "<img src=x onerror=window.owned=1>\u202egpj.exe {{ 7*7 }}\n"
    )
    request = site.ask_change(path, b"a\n", text.encode())
    card = await card_of(page, request)
    await expect(card.locator("tr.add .code")).to_have_text(
        text.strip("\n").replace("\u202e", "\\u{202e}")
    )
    assert await page.evaluate("window.owned ?? null") is None
    assert await card.locator(".diff svg, .diff script, .diff img").count() == 0


@pytest.mark.many
async def test_20_000_lines_do_not_stall(site: Site, context: BrowserContext) -> None:
    lines = [f"value_{number} = {number}  # {'x' * (number % 30)}\n" for number in range(20_000)]
    request = site.ask_change("big.py", None, "".join(lines).encode())
    page = await opened(context, site)
    card = await card_of(page, request)
    await expect(card.locator(".diff tr")).to_have_count(60)
    await expect(card.locator("tr .mi").first).to_have_text("0")
    began = time.process_time()
    for count in (1000, 2000, 3000):
        await card.locator("[data-show-all]").click()
        await expect(card.locator(".diff tr")).to_have_count(count)
    # Server and test together; a runaway took minutes.
    assert time.process_time() - began < 20
