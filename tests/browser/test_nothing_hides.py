"""No page hides the end of what an agent wrote: in each field, it is in view or what is folded
says how much, and nothing is approved before all of it was shown. Measured in the browser, in a
wide window and on a phone."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, expect

from supervisor.core.actions import Action, Exec, FileChange, Git, Network, Packages, Proposal
from supervisor.core.approvals import Request, status
from tests.browser.conftest import PATIENCE_S, SHOWN, opened
from tests.browser.inbox import approve_button, card_of, rows, shown_card, steady
from tests.browser.operator_site import Site
from tests.browser.test_change_sets import ask as ask_many
from tests.browser.test_change_sets import change
from tests.fakes.waiting import settled
from tests.tables import share

# What pushes the end away. `{end}` is the end: another one in each field.
HOSTILE = {
    "spaces": "ls" + " " * 3000 + "{end}",
    "tabs": "ls" + "\t" * 600 + "{end}",
    "blank lines": "ls" + "\n" * 900 + "{end}",
    "lines of blanks": "ls" + "\n   " * 300 + "{end}",
    "short lines": "ls\n" + "x\n" * 400 + "{end}",
    "wide characters": "漢" * 1500 + "{end}",
    "one long word": "x" * 4000 + "{end}",
    "short words": ". " * 1500 + "{end}",
    "odd spaces": "ls" + "\u2003" * 600 + "{end}",
    "letters that are blank": "ls" + "\u2800\u3164" * 300 + "{end}",
    "stacked marks": "e" + "\u0301" * 1500 + "{end}",
    "widest letters": "\ufdfd" * 500 + "{end}",
    "marks of its own": "ls⟨2 spaces⟩" + " " * 500 + "{end}",
}
WINDOWS = {"wide": {"width": 1300, "height": 900}, "phone": {"width": 390, "height": 800}}
FIELDS: dict[str, Callable[[str], Action]] = {
    "command": lambda text: Exec(command=f"echo {text}"),
    "folder": lambda text: Exec(command="make", cwd=text),
    "link": lambda text: FileChange(operation="symlink", path="a", link_target=text,
    after="symlink:x", hazards=("symlink",)),
    "new name": lambda text: FileChange(operation="rename", path="b", to=text, before="x" * 64,
    after="x" * 64),
    "path": lambda text: FileChange(operation="mkdir", path=f"src/{text}", after="dir"),
    "request": lambda text: Network(operation="request", host="a.example.org", port=443,
    scheme="https", method="GET", path=f"/{text}"),
    "host header": lambda text: Network(operation="request", host="b.example.org", port=443,
    scheme="https", method="GET", path="/", host_header=text),
    "TLS name": lambda text: Network(operation="connect", host="c.example.org", port=443, sni=text),
    "refs": lambda text: Git(operation="push", remote="origin", refspecs=(text,)),
    "remote": lambda text: Git(operation="push", remote=text, refspecs=("main",)),
    "git options": lambda text: Git(operation="push", remote="origin", flags=(text,)),
    "packages": lambda text: Packages(manager="pip", operation="install", names=(text,)),
    "package options": lambda text: Packages(manager="pip", operation="install", names=("six",),
    flags=(text,)),
    "proposal": lambda text: Proposal(effect="allow", rule=f"exec({text})"),
    "its why": lambda text: Proposal(effect="allow", rule="exec(make *)", why=text),
    "reason": lambda text: Exec(command="make all"),
}  # fmt: skip
# Where an end is on the page, and whether a person sees it: no box cuts it off but one that says
# so, the list of rows, which goes on below, and no edge of the window.
SEES = """(ends) => {
    const isCutOff = (node, range) => {
        const places = [...range.getClientRects()];
        if (!places.length) return true;
        for (let box = node.parentElement; box; box = box.parentElement) {
            const style = getComputedStyle(box);
            if (style.visibility !== "visible" || Number(style.opacity) === 0) return true;
            if (style.overflow === "visible" || box === document.body || box === document.documentElement || "more" in box.dataset || box.id === "inbox") continue;
            const edge = box.getBoundingClientRect();
            if (places.some((one) => one.bottom > edge.bottom + 1 || one.right > edge.right + 1 || one.left < edge.left - 1)) return true;
        }
        return places.some((one) => one.right > document.documentElement.clientWidth + 1 || one.left < -1);
    };
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode;
        if (node.parentElement.closest(".unseen")) continue;
        for (const end of ends) {
            const at = node.data.indexOf(end);
            if (at < 0) continue;
            const range = document.createRange();
            range.setStart(node, at);
            range.setEnd(node, at + end.length);
            if (!isCutOff(node, range)) found.add(end);
        }
    }
    return ends.filter((end) => !found.has(end));
}"""  # noqa: E501
# What reaches over an edge: the page over the window, or text over a box that neither grows nor
# says that there is more. A row of the list ends in an ellipsis: it leads to the card.
OVERFLOWS = """() => [...document.querySelectorAll("body, body *")].filter((one) => {
    if (one.matches(".unseen, .skip, .bar nav, input, select, textarea, option, svg *, svg") || one.closest(".unseen") || !one.checkVisibility()) return false;
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth && one.getBoundingClientRect().right > page.clientWidth + 1) return true;
    if (getComputedStyle(one).overflow === "visible" || "more" in one.dataset || one.id === "inbox") return false;
    if (getComputedStyle(one).textOverflow === "ellipsis" && one.closest(".row, .group-head, .who, #done")) return false;
    const isAtItsEnd = one.scrollHeight - one.clientHeight - one.scrollTop <= 2; // as a terminal is
    return !isAtItsEnd || one.scrollWidth > one.clientWidth + 2;
}).map((one) => one.outerHTML.slice(0, 160))"""  # noqa: E501


def ask(site: Site, text: str) -> dict[str, Request]:
    """A request for each field, in a session of its own, so that none is in the other's way;
    those that wait, by the end of the field."""
    asked = {}
    for number, (field, make) in enumerate(FIELDS.items()):
        site.parts.sessions.add(f"s{number}")
        end = f"end-{number}-of-it"
        hiding = text.replace("{end}", end)
        reason = (
            hiding[-1900:] if field == "reason" else ""
        )  # the agent's door takes 2,000 characters
        request = site.ask(
            make(hiding),
            session_id=f"s{number}",
            reason=reason,
            origin="workspace" if field == "path" else "agent_api",
        )
        if status(request) == "pending":
            asked[end] = request
    return asked  # fmt: skip


async def nothing_is_cut_off(page: Page, ends: list[str]) -> None:
    await page.evaluate(SHOWN)
    assert await page.evaluate(SEES, ends) == []
    assert await page.evaluate(OVERFLOWS) == []


async def press_approve(site: Site, page: Page, request: Request) -> bool:
    """Press Approve of a card; whether that unfolded its text, with nothing answered, instead of
    approving it."""
    card = await card_of(page, request)
    folds = await card.locator("[data-unfold]").all()
    for button in folds:
        assert "more" in await button.inner_text()
    await steady(card)
    await approve_button(card).click()
    if not folds:
        assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")
        return False
    await expect(card.locator("[data-folded]")).to_have_count(0)
    await expect(page.locator("#quietly")).to_contain_text("All of its text is shown now")
    assert status(site.parts.queue.get(request.id)) == "pending"
    return True


@pytest.mark.parametrize(
    "how", share(HOSTILE, "spaces", "blank lines", "wide characters", "one long word")
)
async def test_each_end_is_in_view_and_what_is_folded_is_unfolded_first(
    site: Site, context: BrowserContext, how: str
) -> None:
    asked = ask(site, HOSTILE[how])
    assert len(asked) >= 10
    page = await opened(context, site)
    await expect(rows(page)).to_have_count(len(asked))
    await nothing_is_cut_off(page, [])
    for end, request in asked.items():
        await page.goto(f"{site.url}/requests/{request.id}")
        for window in WINDOWS.values():
            await page.set_viewport_size(window)  # type: ignore[arg-type]
            await nothing_is_cut_off(page, [end])
    await page.set_viewport_size(WINDOWS["wide"])  # type: ignore[arg-type]
    await press_approve(site, page, next(iter(asked.values())))
    await nothing_is_cut_off(page, [])


@pytest.mark.many
async def test_whichever_field_is_folded_the_first_press_shows_it(site: Site, page: Page) -> None:
    asked = ask(site, HOSTILE["short lines"])
    await expect(rows(page)).to_have_count(len(asked))
    for request in asked.values():
        assert await press_approve(site, page, request), request.action
        assert not await press_approve(site, page, request)
    await nothing_is_cut_off(page, [])


async def test_keys_unfold_before_they_approve(site: Site, page: Page) -> None:
    request = site.ask(Exec(command="make" + " x" * 1500 + " the-end"))
    card = shown_card(page, request)
    for key in ("A", "a"):
        await steady(card)
        await page.keyboard.press(key)
        if key != "a":  # a rule is looked at first; nothing was answered
            await expect(card.locator("form.always-form input:focus")).to_be_visible()
            await steady(card)
            await page.keyboard.press("Enter")
            await expect(page.locator("#quietly")).to_contain_text("All of its text is shown now")
            await page.reload()
            await card.focus()
    await expect(card.locator("[data-folded]")).to_have_count(0)
    await expect(card.locator("[data-role=action]")).to_contain_text(" x" * 1500)
    assert status(site.parts.queue.get(request.id)) == "pending"
    await steady(card)
    await page.keyboard.press("a")
    assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")


async def test_several_are_approved_once_all_of_each_was_shown(site: Site, page: Page) -> None:
    requests = [
        site.ask(Exec(command=one)) for one in ("make", "make all", "ls " + "x" * 3000 + " the-end")
    ]
    await expect(rows(page)).to_have_count(3)
    # What is selected is all that is like the card that is open.
    await expect(page.locator("#pane [data-role=action]")).to_be_visible()
    await page.keyboard.press("X")
    card = page.locator("#pane[data-batch]")
    await expect(card.locator("[data-role=action]")).to_have_count(3)
    await steady(card)
    await approve_button(card).click()
    await expect(page.locator("#quietly")).to_contain_text("All of its text is shown now")
    await expect(card.locator("[data-folded]")).to_have_count(0)
    assert {status(site.parts.queue.get(one.id)) for one in requests} == {"pending"}
    await steady(card)
    await approve_button(card).click()
    for request in requests:
        assert status(await site.parts.gate.wait(request.id, PATIENCE_S)) in ("approved", "used")


@pytest.mark.parametrize("window", share(WINDOWS, "phone"))
async def test_long_names_among_many_files_are_answered_on_their_own(
    site: Site, context: BrowserContext, window: str
) -> None:
    site.parts.gate.handlers.on_ready("filesystem", "workspace", site._apply)
    ordinary = ask_many(site, [change(site, f"src/{number}.py") for number in range(20)])
    folder = "漢" * 80 + " " * 40
    long = [f"{folder}/{'x' * 200}{number}/{'y' * 100}end-{number}-of-it.py" for number in range(2)]
    hidden = ask_many(site, [change(site, path) for path in long])
    page = await opened(context, site, "/changes/one")
    await page.set_viewport_size(WINDOWS[window])  # type: ignore[arg-type]
    card = page.locator("#changes-one")
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 22 files in project")
    await expect(card.locator(".careful")).to_contain_text("too long to be shown whole in a list")
    await nothing_is_cut_off(page, [])
    for end, request in zip(("end-0-of-it", "end-1-of-it"), hidden, strict=True):
        await page.locator(f"#file-{request.id}").scroll_into_view_if_needed()
        await expect(page.locator(f"#file-{request.id} [data-loading]")).to_have_count(0)
        await nothing_is_cut_off(page, [end])
    # A tick needs the whole name.
    await steady(card)
    tick = card.locator(f'[data-tick^="{hidden[0].id}"]')
    await tick.click()
    await expect(page.locator("#quietly")).to_contain_text("All of its text is shown now")
    await expect(tick).not_to_be_checked()
    await steady(card)
    await card.get_by_role("button", name="Approve 20 of 22").click()
    await expect(card.locator("[data-role=sum]")).to_have_text("Change 2 files in project")
    assert {status(site.parts.queue.get(one.id)) for one in ordinary} == {"used"}
    row = card.locator(f"#file-{hidden[1].id}")
    await row.scroll_into_view_if_needed()
    await expect(row.locator("[data-loading]")).to_have_count(0)
    await steady(card)
    await row.get_by_role("button", name="Approve this").click()
    await expect(row.locator("[data-folded]")).to_have_count(0)
    assert {status(site.parts.queue.get(one.id)) for one in hidden} == {"pending"}
    await nothing_is_cut_off(page, [])
    await steady(card)
    await row.get_by_role("button", name="Approve this").click()
    assert status(await settled(site.parts.queue, hidden[1].id, PATIENCE_S)) == "used"


@pytest.mark.parametrize("how", share(HOSTILE, "stacked marks"))
async def test_no_other_page_cuts_anything_off(
    site: Site, context: BrowserContext, how: str
) -> None:
    asked = ask(site, HOSTILE[how])
    text = HOSTILE[how].replace("{end}", "end-of-it")
    rule = f"exec(ls {'x' * 1500}end-of-it)"
    site.parts.policies.add_rule("deny", rule, why=text, by="the agent")
    sessions = site.parts.sessions
    sessions.add(
        "evil",
        "/tmp/project",
        command=("sh", "-c", text),
        notices=(text,),
        model=text[:200],
        base=text,
        kind="review",
    )
    finding = dict.fromkeys(("severity", "title", "path", "body", "suggestion"), text)
    sessions.record_review(
        "evil", {"verdict": text, "summary": text, "model": text, "findings": [finding]}
    )
    sessions.say("evil", text.encode() + b"\n")
    answered = site.ask(Exec(command=f"echo {text}"), session_id="evil", reason=text[-1900:])
    site.parts.gate.resolve(answered.id, "denied", by="operator (cli)", reason=text[-1900:])
    for request in asked.values():
        site.parts.gate.resolve(request.id, "denied", by="operator (cli)")
    site.ask(Exec(command=f"echo {text}"), session_id="evil")  # denied again, without a card
    for path in (
        "/",
        "/sessions",
        "/sessions/evil",
        "/sessions/evil/output",
        "/rules",
        "/history",
        "/network",
    ):
        page = await opened(context, site, path)
        await page.evaluate(
            "for (const one of document.querySelectorAll('details')) one.open = true"
        )
        if path == "/sessions/evil/output":
            await expect(page.locator("#output")).to_contain_text("end-of-it")
        ends = {"/history": list(asked)}.get(path, []) + (
            ["end-of-it"] if path != "/network" else []
        )
        for window in WINDOWS.values():
            await page.set_viewport_size(window)  # type: ignore[arg-type]
            await nothing_is_cut_off(page, ends)
        await page.close()


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_diff_says_its_size_and_what_is_odd(
    site: Site, context: BrowserContext, window: str
) -> None:
    lines: dict[str, Any] = {
        "a": "x = 1",
        "b": "y = 2" + " " * 300 + "; evil()",
        "c": "z" * 900,
        "d": "\n" * 60 + "evil()",
    }
    request = site.ask_change("a.py", b"x = 0\n", "\n".join(lines.values()).encode() + b"\n")
    page = await opened(context, site, f"/requests/{request.id}")
    await page.set_viewport_size(WINDOWS[window])  # type: ignore[arg-type]
    card = shown_card(page, request)
    await expect(card.locator("[data-role=size]")).to_contain_text("lines, 1,")
    await expect(card).to_contain_text("very long lines: line 3")
    await expect(card).to_contain_text("runs of blanks: from lines 2, 4 on")
    # A box that scrolls says so until its end is in view.
    box = card.locator(".pane-scroll")
    await expect(box).to_have_attribute("data-more", "")
    await nothing_is_cut_off(page, [])
    await box.evaluate("(one) => one.scrollTo(0, one.scrollHeight)")
    await expect(box).not_to_have_attribute("data-more", "")


async def test_a_long_change_is_shown_part_by_part_before_it_is_approved(
    site: Site, page: Page
) -> None:
    text = "".join(f"row {n} of it\n" for n in range(1500)).encode()
    request = site.ask_change("long.txt", None, text)
    card = await card_of(page, request)
    await expect(card.locator(".diff tr")).to_have_count(60)
    await steady(card)
    await card.focus()
    for count in (1000, 1500):
        await page.keyboard.press("a")
        await expect(card.locator(".diff tr")).to_have_count(count)
        assert status(site.parts.queue.get(request.id)) == "pending"
        await steady(card)
    await expect(card.get_by_text("row 1499 of it")).to_have_count(1)
    await page.keyboard.press("a")
    await expect(card).to_have_attribute("data-status", "used")
