"""One file's card over a real workspace: ticks, what reaches the host, a newer version under a
person's hand, images, hostile text."""

import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, WebSocketRoute, expect

from supervisor.core.approvals import Request, status
from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy.snapshot import make_copy
from tests.browser.conftest import Watch, opened
from tests.browser.inbox import approve_button, nothing_waits, reason_box, steady
from tests.browser.operator_site import Site

LINES = [f"line {number}\n" for number in range(60)]
OLD = "".join(LINES)
PATH = "values.txt"


def changed(*numbers: int) -> str:
    return "".join(line.upper() if number in numbers else line for number, line in enumerate(LINES))


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


class Desk:
    """The real channel of session `one`: the host's folder, the agent's copy, and the cards that
    come of it."""

    def __init__(self, site: Site, host: Path, channel: WorkspaceChannel, copy: Path) -> None:
        self.site, self.host, self.channel, self.copy = site, host, channel, copy

    def write(self, text: str | bytes, path: str = PATH) -> None:
        (self.copy / path).write_bytes(text.encode() if isinstance(text, str) else text)

    def on_host(self) -> str:
        return (self.host / PATH).read_text()

    def pending(self) -> list[Request]:
        return self.site.parts.queue.pending("one")

    def requests(self) -> list[Request]:
        return self.site.parts.queue.of_session("one")


@pytest_asyncio.fixture(loop_scope="session")
async def desk(site: Site, tmp_path: Path) -> AsyncIterator[Desk]:
    host, folder = tmp_path / "host", tmp_path / "session"
    host.mkdir()
    (host / PATH).write_text(OLD)
    (host / "logo.png").write_bytes(png(8, 4))
    channel = WorkspaceChannel(
        session_id="one", workspace=host, folder=folder, gate=site.parts.gate
    )
    site.parts.workspace_of = lambda session_id: channel if session_id == "one" else None  # type: ignore[assignment, return-value, method-assign]
    for origin in ("workspace", "agent_api"):
        site.parts.gate.handlers.on_ready("filesystem", origin, channel.carry_out)
    await make_copy(host, folder / "merged")
    await channel.start()
    yield Desk(site, host, channel, folder / "merged")
    await channel.stop()


def cards(page: Page) -> Locator:
    """The open card, while it waits."""
    return page.locator('#pane.card[data-status="pending"]')


def whole(card: Locator) -> Locator:
    """What approves all of it."""
    return card.locator('[data-key="a"]:not([data-part])')


def last_answered(page: Page) -> Locator:
    return page.locator("#answered [data-row]").first


def tick(card: Locator, number: int) -> Locator:
    return card.locator(f'input[data-number="{number}"]')


async def until(page: Page, condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await page.wait_for_timeout(20)
    raise AssertionError("it never came to be")


async def test_one_of_two_changes_is_ticked_and_approved(desk: Desk, page: Page) -> None:
    desk.write(changed(5, 50))
    card = cards(page)
    await expect(card).to_have_count(1)
    await expect(whole(card)).to_be_visible()
    await expect(card.locator('[data-role="rest"]')).to_be_hidden()
    await tick(card, 1).uncheck()
    await expect(whole(card)).to_be_hidden()
    await card.get_by_role("button", name="Approve 1 of 2 changes").click()
    row = last_answered(page)
    await expect(row).to_contain_text("in part, 1 of 2 changes; the other waits")
    assert desk.on_host() == changed(50)
    # The rest is a card of its own, which opens by itself.
    rest = cards(page)
    await expect(rest).to_have_count(1)
    await expect(rest.locator("tr.add")).to_have_text(re.compile("LINE 5$"))
    await expect(rest.locator("input[data-hunk]")).to_have_count(0)
    await steady(rest)
    await approve_button(rest).click()
    await until(page, lambda: desk.on_host() == changed(5, 50))
    await nothing_waits(page)


async def test_news_that_come_after_the_answer_change_nothing_of_it(
    desk: Desk, context: BrowserContext, site: Site
) -> None:
    held: list[str | bytes] = []
    is_held = False
    to_page: Callable[[str | bytes], None]

    def connected(socket: WebSocketRoute) -> None:
        nonlocal to_page
        to_page = socket.send
        socket.connect_to_server().on_message(
            lambda text: held.append(text) if is_held else socket.send(text)
        )

    await context.route_web_socket(re.compile("/ws$"), connected)
    page = await opened(context, site)
    desk.write(changed(5, 50))
    await tick(cards(page), 2).uncheck()
    is_held = True
    await page.get_by_role("button", name="Approve 1 of 2 changes").click()
    row = last_answered(page)
    await expect(row).to_contain_text("in part, 1 of 2 changes; the other waits")
    await until(page, lambda: desk.pending())
    said = await row.inner_text()
    while held:
        to_page(held.pop(0))
    is_held = False
    await expect(cards(page)).to_have_count(1)  # the rest, which was the last of the news
    assert await row.all_inner_texts() == [said]


@pytest.mark.many
async def test_the_rest_is_dropped_by_keys_alone(desk: Desk, page: Page) -> None:
    desk.write(changed(5, 30, 50))
    card = cards(page)
    await expect(card).to_have_count(1)
    await expect(page.locator(".card[data-settling]")).to_have_count(0)
    await page.keyboard.press("2")
    await page.keyboard.press("1")
    await page.keyboard.press("1")
    await page.keyboard.press("3")
    await expect(card.get_by_role("button", name="Approve 1 of 3 changes")).to_be_visible()
    await card.get_by_label("is dropped").check()
    await page.keyboard.press("a")
    await expect(page.locator("#answered")).to_contain_text(
        "in part, 1 of 3 changes; the other 2 were dropped"
    )
    assert desk.on_host() == changed(5)
    await nothing_waits(page)
    await until(
        page, lambda: sorted(map(status, desk.requests())) == ["denied", "superseded", "used"]
    )
    async with desk.channel._turn:
        await desk.channel._now.comparison.run(None)
    assert not desk.pending()


async def test_a_newer_version_takes_the_cards_place_with_ticks_text_focus_and_scroll(
    desk: Desk, page: Page
) -> None:
    desk.write(changed(5, 30, 50))
    await expect(cards(page)).to_have_count(1)
    first = await cards(page).get_attribute("data-request")
    card = cards(page)
    await tick(card, 3).uncheck()
    await card.get_by_label("is dropped").check()
    await reason_box(card).fill("half a sentence")
    await tick(card, 1).focus()
    await page.set_viewport_size({"width": 1200, "height": 500})
    await card.locator(".pane-scroll").evaluate("one => { one.scrollTop = 40 }")
    desk.write(changed(5, 31, 50))  # the second change is another now
    await expect(page.locator(f'#pane[data-request="{first}"]')).to_have_count(0)
    await expect(cards(page)).to_have_count(1)
    await expect(page.locator("#answered")).to_have_count(0)
    card = cards(page)
    await expect(card.locator('[data-role="newer"]')).to_contain_text(
        "Of your 2 ticks 1 still stands"
    )
    await expect(tick(card, 1)).to_be_checked()
    await expect(tick(card, 2)).not_to_be_checked()
    await expect(tick(card, 3)).not_to_be_checked()
    await expect(tick(card, 1)).to_be_focused()
    await expect(reason_box(card)).to_have_value("half a sentence")
    await expect(card.get_by_label("is dropped")).to_be_checked()
    assert await card.locator(".pane-scroll").evaluate("one => one.scrollTop") == 40
    button = card.get_by_role("button", name="Approve 1 of 3 changes")
    await expect(button).to_be_visible()
    await button.click()
    await until(page, lambda: desk.on_host() == changed(5))


@pytest.mark.many
async def test_another_tab_sees_what_was_taken(
    desk: Desk, page: Page, context: BrowserContext, site: Site
) -> None:
    desk.write(changed(5, 50))
    await expect(cards(page)).to_have_count(1)
    other = await opened(context, site)
    await expect(cards(other)).to_have_count(1)
    await tick(cards(page), 2).uncheck()
    await page.get_by_role("button", name="Approve 1 of 2 changes").click()
    # Each page says the same of it, whichever way it heard.
    row = last_answered(page)
    await expect(row).to_contain_text("in part, 1 of 2 changes; the other waits")
    await expect(last_answered(other)).to_have_text(await row.inner_text())
    await expect(cards(other)).to_have_count(1)
    await expect(cards(other).locator("tr.add")).to_have_text(re.compile("LINE 50$"))


@pytest.mark.many
async def test_a_host_that_moved_on_keeps_the_ticks_and_says_so(desk: Desk, page: Page) -> None:
    desk.write(changed(5, 50))
    card = cards(page)
    await expect(card).to_have_count(1)
    await tick(card, 2).uncheck()
    async with desk.channel._turn:  # nobody told the page yet
        (desk.host / PATH).write_text("mine\n")
        await card.get_by_role("button", name="Approve 1 of 2 changes").click()
    await until(
        page,
        lambda: any("conflict" in getattr(one.action, "hazards", ()) for one in desk.pending()),
    )
    assert desk.on_host() == "mine\n"
    assert not any(one.answer == "approved" for one in desk.requests())


@pytest.mark.many
async def test_ticks_stay_when_the_whole_diff_is_shown(desk: Desk, page: Page) -> None:
    (desk.host / "long.txt").write_text("".join(f"{number}\n" for number in range(300)))
    desk.write(
        "".join(f"{number}{'!' if number % 20 == 0 else ''}\n" for number in range(300)), "long.txt"
    )
    card = cards(page)
    await expect(card).to_have_count(1)
    # The 60 lines that a card begins with end within a change: that one can't be ticked before all
    # of it is there.
    await expect(card.locator("input[data-hunk]:disabled")).to_have_count(1)
    await tick(card, 2).uncheck()
    await card.get_by_role("button", name="Show the other").click()
    await expect(card.locator("input[data-hunk]")).to_have_count(15)
    await expect(card.locator("input[data-hunk]:disabled")).to_have_count(0)
    await expect(tick(card, 2)).not_to_be_checked()
    await expect(card.get_by_role("button", name="Approve 14 of 15 changes")).to_be_visible()


async def test_images_are_side_by_side_and_nothing_else_is_served(
    desk: Desk, page: Page, site: Site
) -> None:
    desk.write(png(16, 6), "logo.png")
    card = cards(page)
    await expect(card.locator("img")).to_have_count(2)
    sizes = await card.locator("img").evaluate_all(
        "async (all) => { await Promise.all(all.map((one) => one.decode())); return all.map((one)"
        " => [one.naturalWidth, one.naturalHeight]) }"
    )
    assert sizes == [[8, 4], [16, 6]]
    await expect(card.locator("figcaption").nth(1)).to_contain_text("PNG image, 16 by 6 pixels")
    answer = await page.request.get(f"{site.url}/api/requests/{desk.pending()[0].id}/image/new")
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_hostile_text_stays_text(desk: Desk, page: Page, site: Site, watch: Watch) -> None:
    hostile = (
        '<img src=x onerror="alert(1)"></div><script>alert(2)</script>"\' \u202egpj.exe {{ 7*7 }}\n'
    )
    desk.write("".join([*LINES[:5], hostile, *LINES[6:50], hostile, *LINES[51:]]))
    desk.write(f"<b>{hostile}</b>\0", "logo.png")
    await until(page, lambda: len(desk.pending()) == 2)
    titles = {getattr(one.action, "path", ""): one.id for one in desk.pending()}
    card = cards(page)
    await page.goto(f"{site.url}/requests/{titles['logo.png']}")
    await expect(page.locator(".card img")).to_have_count(1)  # the old logo
    await page.goto(f"{site.url}/requests/{titles['values.txt']}")
    await expect(card.locator("tr.add").first).to_contain_text(
        '<img src=x onerror="alert(1)"></div><script>'
    )
    await expect(card.locator("tr.add").first).to_contain_text("\\u{202e}gpj.exe {{ 7*7 }}")
    await expect(card).to_contain_text("lines 6, 51 have some")
    await expect(page.locator(".card script, .diff img")).to_have_count(0)
    await tick(card, 2).uncheck()
    await card.get_by_role("button", name="Approve 1 of 2 changes").click()
    await until(page, lambda: hostile in desk.on_host())
    assert watch.complaints == []


async def test_what_runs_with_tests_or_a_build_has_a_quiet_mark(desk: Desk, page: Page) -> None:
    desk.write("def pytest_configure(): ...\n", "conftest.py")
    mark = cards(page).locator('[data-role="mark"]')
    await expect(mark).to_have_text("runs when you run tests or a build")
    await expect(cards(page).locator("[data-role=warning]")).to_have_count(0)
