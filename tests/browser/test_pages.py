"""Sessions, rules and history in the browser, and the ways in."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from supervisor.core.actions import Exec, Network
from supervisor.core.approvals import status
from supervisor.core.network.egress_wire import Answer, Decision, Question, Settled
from tests.browser.conftest import PATIENCE_S, Watch, opened
from tests.browser.inbox import (
    approve,
    approve_button,
    card_of,
    nothing_waits,
    row_of,
    shown_card,
    steady,
)
from tests.browser.operator_site import Site, fill


async def test_output_arrives_as_it_is_printed(site: Site, context: BrowserContext) -> None:
    site.parts.sessions.say("one", b"first line\n")
    page = await opened(context, site, "/sessions/one/output")
    box = page.locator("#output")
    await expect(box).to_have_text("first line\n")
    site.parts.sessions.say("one", b"\x1b[31msecond\x1b[0m line\r\n")
    site.parts.sessions.say("two", b"of another session\n")
    await expect(box).to_have_text("first line\nsecond line\n")
    for number in range(200):
        site.parts.sessions.say("one", f"line {number}\n".encode())
    await expect(box).to_contain_text("line 199")
    assert await box.evaluate("(one) => one.scrollTop + one.clientHeight >= one.scrollHeight - 40")


async def test_only_the_end_of_a_long_output_is_read(site: Site, context: BrowserContext) -> None:
    site.parts.sessions.say(
        "one", b"beginning\n" + b"x" * 99 + b"\n" + b"middle of it all\n" * 40_000 + b"the end\n"
    )
    page = await opened(context, site, "/sessions/one/output")
    await expect(page.locator("#output")).to_contain_text("the end")
    assert "beginning" not in (await page.locator("#output").text_content() or "")
    await expect(page.get_by_text("The last part; all of it is in")).to_be_visible()


async def test_a_session_from_start_to_end(
    site: Site, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = site.parts.sessions
    page = await opened(context, site, "/sessions/one")
    state = page.locator("#session-head .state")
    await expect(state).to_have_text("working")
    monkeypatch.setattr(
        sessions, "progress", lambda _: {"done": 120, "total": 900, "bytes": 4_200_000}
    )
    sessions.change("one", started_at=None)
    await expect(page.locator("#session-head")).to_contain_text("120 of 900 files, 4.2 MB")
    monkeypatch.undo()
    sessions.change(
        "one", started_at=site.parts.clock.now(), notices=("recorded model: nobody looked at this",)
    )
    await expect(page.locator("#session-head .notice")).to_have_text(
        "recorded model: nobody looked at this"
    )
    request = site.ask(Exec(command="make"))
    site.ask(Exec(command="make elsewhere"), session_id="two")
    entry = page.locator("#timeline li", has_text="make")
    await expect(entry).to_have_count(1)
    await expect(entry).to_contain_text("waits for you")
    await expect(state).to_have_text("waits for you")
    inbox = await opened(context, site)
    await approve(inbox, request)
    await inbox.close()
    await expect(entry.locator(".state.done")).to_have_text("done, exit code 0")
    await expect(entry).to_contain_text("You approved after")
    sessions.record_review("one", {
        "model": "recorded", "verdict": "comment", "summary": "Sound.",
        "findings": [{"severity": "low", "title": "small"}, {"severity": "critical",
        "title": "large", "path": "a.py", "line": 3}],
    })  # fmt: skip
    await expect(page.locator("[data-role=finding] h4")).to_have_text(["large", "small"])
    await page.get_by_role("button", name="Stop session", exact=True).click()
    async with page.expect_response("**/stop"):
        await page.get_by_role("button", name="Stop it").click()
    assert sessions.stopped == [("one", "stopped by the operator", "operator (browser)")]
    sessions.change(
        "one", ended_at=site.parts.clock.now(), end_reason="stopped by the operator", exit_code=143
    )
    await expect(state).to_have_text("stopped by the operator")
    await expect(page.locator("#session-head")).to_contain_text("exit code 143")
    await expect(page.get_by_role("button", name="Stop session", exact=True)).to_have_count(0)


@pytest.mark.many
async def test_starting_a_session(site: Site, context: BrowserContext, tmp_path: Path) -> None:
    page = await opened(context, site, "/sessions")
    command_box = page.get_by_role("textbox", name="Command")
    await page.get_by_label("Review my changes").check()
    await expect(command_box).to_be_hidden()
    await page.get_by_role("radio", name="Command").check()
    await expect(page.get_by_label("Since")).to_be_hidden()
    await page.get_by_label("Folder").fill("/no/such/folder")
    start = page.get_by_role("button", name="Start command")
    for command, said in (
        ("", "the command is missing"),
        ("sh 'x", "close every quote"),
        ("sh", "does not exist"),
    ):
        await command_box.fill(command)
        await start.click()
        await expect(page.locator("#start-said")).to_contain_text(said)
    await page.get_by_label("Folder").fill(str(tmp_path))
    await page.get_by_text("More:").click()
    await page.get_by_label("Time limit").fill("soon")
    await start.click()
    await expect(page.locator("#start-said")).to_contain_text("`soon` is not a duration")
    await page.get_by_label("Time limit").fill("30m")
    await command_box.fill("sh -c 'echo hi'")
    await start.click()
    await page.wait_for_url(re.compile(r"/sessions/started-\d+$"))
    assert site.parts.sessions.recent()[0].command == ("sh", "-c", "echo hi")


async def test_rules_are_added_and_removed(site: Site, context: BrowserContext) -> None:
    page = await opened(context, site, "/rules")
    other = await opened(context, site, "/rules")
    await page.bring_to_front()
    waiting = site.ask(
        Network(operation="connect", host="a.packages.example.org", port=443), origin="egress"
    )
    await page.get_by_role("textbox", name="Rule").fill("networ(*.example.org)")
    await page.get_by_role("button", name="Add").click()
    await expect(page.locator("#rules-said .bad")).to_contain_text("network")
    await page.get_by_role("textbox", name="Rule").fill("network(*.packages.example.org)")
    await page.get_by_role("button", name="What would it answer?").click()
    await expect(page.locator("#rule-seen")).to_contain_text(
        "answers 1 waiting now: connect a.packages.example.org:443"
    )
    assert status(site.parts.queue.get(waiting.id)) == "pending"
    await page.get_by_label("Why").fill("the team's index")
    await page.get_by_role("button", name="Add").click()
    await expect(page.locator("#rules-said .good")).to_contain_text("It answered 1 that waited")
    assert status(site.parts.queue.get(waiting.id)) == "approved"
    await expect(page.get_by_role("textbox", name="Rule")).to_be_empty()
    await expect(page.locator("#rule-seen")).to_be_empty()
    for one in (page, other):
        row = one.locator("tr", has_text="network(*.packages.example.org)")
        await expect(row).to_contain_text("the team's index")
        await expect(row).to_contain_text("operator (browser)")
    await expect(page.get_by_role("button", name="Remove exec")).to_have_count(
        0
    )  # those stand in the policy file
    await page.get_by_role("button", name="Remove network(*.packages.example.org)").click()
    await page.locator("#confirm-yes").click()
    for one in (page, other):
        await expect(one.locator("tr", has_text="network(*.packages.example.org)")).to_have_count(0)


async def test_many_rules_are_folded_and_found_by_words(
    site: Site, context: BrowserContext
) -> None:
    site.parts.settings.policy_file.write_text(
        "version: 1\nallow:\n"
        + "".join(f"  - exec(tool{i} *)\n" for i in range(40))
        + "  - network(a.example.org)\n"
    )
    page = await opened(context, site, "/rules")
    rows, exec_rules = (
        page.locator("#rules table.rules tbody tr:visible"),
        page.locator("details[data-keep=exec]"),
    )
    await expect(rows).to_have_count(1)
    await expect(exec_rules.locator("summary")).to_contain_text("40 allow")
    find = page.get_by_label("Find")
    await find.fill("TOOL39 allow")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("exec(tool39 *)")
    await find.fill("nothing has this")
    await expect(rows).to_have_count(0)
    await expect(page.locator("#no-such-rule")).to_be_visible()
    await find.fill("")
    await expect(rows).to_have_count(1)
    await exec_rules.locator("summary").click()
    await expect(rows).to_have_count(41)
    await page.get_by_role("textbox", name="Rule").fill("exec(mine *)")
    await page.get_by_role("button", name="Add").click()
    await expect(page.locator("tr", has_text="exec(mine *)")).to_be_visible()
    await expect(rows).to_have_count(42)  # what the person unfolded stays so


async def test_rules_say_what_happens_without_them(site: Site, context: BrowserContext) -> None:
    site.ask(Exec(command="git status"))
    site.parts.gate.pending_writes.write()
    page = await opened(context, site, "/rules")
    await expect(page.locator("tr", has_text="exec(git status)")).to_contain_text("1 times")
    await expect(page.locator("tr", has_text="exec(make deploy)")).to_contain_text(
        "it reaches production"
    )
    await expect(page.locator("#rules")).to_contain_text("packages ask")
    await expect(page.locator("#rules")).to_contain_text(".git/**")
    await page.get_by_text("asked", exact=True).click()
    await expect(page.locator("code", has_text=".github/**")).to_be_visible()
    source = page.get_by_role("link", name="the source for .kiro/**")
    await expect(source).to_have_attribute("href", "https://kiro.dev/docs/hooks/")
    await page.get_by_text("marked", exact=True).click()
    await expect(page.locator("code", has_text="conftest.py")).to_be_visible()


async def test_what_goes_over_the_network_shows_as_it_happens(
    site: Site, context: BrowserContext
) -> None:
    def send(number: int, host: str, decision: Decision = "allow") -> None:
        action = Network(
            operation="request",
            host=host,
            port=443,
            scheme="https",
            method="GET",
            path=f"/{number}",
        )
        question = Question(
            question_id=number,
            session_id="one",
            connection_id="c",
            action=action,
            headers=(("accept", "<b>*/*</b>"),),
        )
        site.parts.network_log.answered(
            question, Answer(question_id=number, decision=decision, why="so", rule="network(r)")
        )

    send(1, "a.example.org")
    page = await opened(context, site, "/network?session=one")
    first = page.locator("details.host", has_text="a.example.org")
    await expect(first).to_contain_text("1 request")
    await expect(first).to_contain_text("1 open")
    await first.locator("summary").first.click()
    await first.get_by_text("1 header").click()
    await expect(first.locator("pre")).to_have_text("accept: <b>*/*</b>\n")
    send(2, "b.example.org", "deny")
    second = page.locator("details.host", has_text="b.example.org")
    await expect(second).to_contain_text("1 refused")
    detail: dict[str, str | int | float | None] = {
        "status": 204,
        "up_bytes": 1500,
        "down_bytes": 2_500_000,
        "duration_s": 0.25,
    }
    site.parts.network_log.settled(Settled(question_id=1, outcome="done", detail=detail))
    await expect(first).to_contain_text("1.5 kB out, 2.5 MB in")
    await expect(first.locator("tbody tr").first).to_contain_text("204")  # still unfolded
    await expect(first.locator("tbody tr").first).to_be_visible()
    await expect(first.locator("pre")).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download as HAR").click()
    assert (await download.value).suggested_filename.endswith(".har")


async def test_a_policy_that_does_not_parse_is_said(site: Site, context: BrowserContext) -> None:
    page = await opened(context, site)
    site.parts.settings.policy_file.write_text("version: 1\nalow: []\n")
    assert site.parts.policies.banner is not None
    site.app.state["live"].policy_changed()
    await expect(page.locator("#banner")).to_contain_text("did you mean `allow`")


@pytest.mark.many
async def test_history_newest_first_and_older_on_demand(
    site: Site, context: BrowserContext
) -> None:
    for number in range(120):
        site.ask(Exec(command=f"git stash {number}"))
    page = await opened(context, site, "/history")
    rows = page.locator("#history tr")
    await expect(rows).to_have_count(101)
    await expect(rows.first).to_contain_text("git stash 119")
    await expect(rows.first).to_contain_text("ask")
    await rows.first.locator("summary").click()
    await expect(rows.first.locator("pre")).to_contain_text('"prev":')
    await page.get_by_role("button", name="Older records").click()
    await expect(page.get_by_role("button", name="Older records")).to_have_count(0)
    numbers = [
        int(text) for text in re.findall(r"#(\d+)", await page.locator("#history").inner_text())
    ]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[-1] == 1
    site.ask(Exec(command="rm -rf /"))
    await page.get_by_role("link", name="There are newer records").click()
    await expect(rows.first).to_contain_text("rm -rf /")
    await expect(rows.first.locator(".state")).to_have_text("deny")


async def test_a_link_signs_in_once(site: Site, browser: Browser, watch: Watch) -> None:
    watch.expected = ("status of 403", "status of 401", "status of 404")
    link = site.auth.login_url()
    contexts = [await browser.new_context() for _ in range(2)]
    first, second = [await one.new_page() for one in contexts]
    for page in (first, second):
        watch.follow(page)
    await first.goto(link)
    await first.wait_for_selector('#live[data-state="on"]')
    assert "token" not in first.url
    cookies = await contexts[0].cookies()
    assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Strict")]
    await first.goto(link)  # the same browser just goes on
    await first.wait_for_selector('#live[data-state="on"]')
    await second.goto(link)
    await expect(second.locator("h1")).to_have_text("Not let in")
    await expect(second.locator("main")).to_contain_text("this sign-in link was used before")
    await second.goto(site.url)
    await expect(second.locator("h1")).to_have_text("Not signed in")
    await first.goto(f"{site.url}/sessions/nobody")
    await expect(first.locator("h1")).to_have_text("Not found")
    await first.goto(f"{site.url}/nowhere")
    await expect(first.locator("h1")).to_have_text("Not found")
    for one in contexts:
        await one.close()


async def test_what_was_missed_is_there_after_a_restart(
    site: Site, page: Page, watch: Watch
) -> None:
    watch.expected = ("WebSocket connection", "net::ERR_", "htmx:")
    before = site.ask(Exec(command="make before"))
    card = await card_of(page, before)
    await steady(card)
    await site.close()
    await expect(page.locator("#live-text")).to_have_text("not connected")
    await expect(page.locator("#lost")).to_contain_text("What you see here may be old")
    await approve_button(card).click()
    await expect(page.locator("#toast")).to_contain_text(
        "Whether what you asked for was done is shown here"
    )
    site.parts.gate.resolve(before.id, "denied", by="operator (cli)")
    missed = site.ask(Exec(command="make missed"))
    await site.open()
    await expect(row_of(page, missed)).to_be_visible()
    await expect(shown_card(page, before)).to_have_attribute("data-status", "denied")
    await expect(page.locator("#lost")).to_be_hidden()
    await approve(page, missed)
    assert status(await site.parts.gate.wait(missed.id, PATIENCE_S)) in ("approved", "used")


@pytest.mark.many
async def test_what_carries_something_out_is_not_given_up_by_the_page(
    site: Site, page: Page
) -> None:
    """The server would do it all the same, and the page would say otherwise."""
    asked = site.ask(Exec(command="make slowly"))
    await page.evaluate(
        """() => document.addEventListener("htmx:beforeSend", (event) => {
        if (event.detail.requestConfig.verb === "post") document.body.dataset.limit = event.detail.xhr.timeout; })"""  # noqa: E501
    )
    await approve(page, asked)
    await expect(page.locator("body")).to_have_attribute("data-limit", "0")
    assert status(await site.parts.gate.wait(asked.id, PATIENCE_S)) in ("approved", "used")


async def test_a_page_of_an_earlier_gatehouse_says_that_it_is_signed_out(
    site: Site, page: Page, watch: Watch
) -> None:
    watch.expected = ("WebSocket connection", "net::ERR_", "htmx:", "401")
    tried: list[str] = []
    await site.close()
    page.on("response", lambda answer: tried.append(answer.url) if answer.status == 401 else None)
    await site.open(is_signed_out=True)
    await expect(page.locator("#lost")).to_contain_text("You are signed out")
    await expect(page.locator("#lost")).to_contain_text("gatehouse url")
    await expect(page.locator("#stop-all")).to_be_disabled()
    assert len(tried) == 1, "each further try would count as a wrong credential"


async def test_a_card_says_that_its_session_has_ended(site: Site, page: Page) -> None:
    asked = site.ask_change("a.txt", b"old\n", b"new\n")
    card = await card_of(page, asked)
    await expect(card).to_contain_text("session ends in")
    site.parts.sessions.change("one", ended_at=site.parts.clock.now())
    await expect(card).to_contain_text("session has ended")


async def test_nothing_yet(site: Site, context: BrowserContext) -> None:
    for name in ("one", "two"):
        site.parts.sessions.change(name, ended_at=site.parts.clock.now())
    page = await opened(context, site)
    await nothing_waits(page)
    await expect(page.locator("#pane")).to_contain_text("Nothing waits for you")
    await expect(page.locator("#first-run .way")).to_have_count(3)


@pytest.mark.many
async def test_no_page_is_wider_than_a_phone(
    site: Site, browser: Browser, context: BrowserContext
) -> None:
    requests = fill(site)
    site.ask(Exec(command="x" * 3000), reason="y" * 900)
    site.parts.gate.resolve(requests[0].id, "denied", by="operator (cli)", reason="z" * 300)
    site.parts.policies.add_rule("deny", f"filesystem({'a' * 300})", why="b" * 300, by="c")
    site.parts.sessions.say("one", b"w" * 4000 + b"\n")
    card = f"/requests/{requests[1].id}"
    for path in ("/", card, "/sessions", "/sessions/one", "/rules", "/network", "/history"):
        page = await context.new_page()
        await page.set_viewport_size({"width": 390, "height": 800})
        await page.goto(site.url + path)
        await page.wait_for_selector('#live[data-state="on"]', state="attached")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390, path
        await page.close()
