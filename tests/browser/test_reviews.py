"""`gatehouse demo` in a browser: the review of a pull request comes to the inbox, one finding is
left out, another worded anew, and what the forge gets is exactly what was shown."""

import shutil
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from supervisor.core.approvals import Request
from supervisor.core.forge_acts import Act
from supervisor.reviews.core.findings import Finding, PlacedFinding
from supervisor.reviews.core.posts import PullTarget, review_act
from supervisor.reviews.demo.pull_page import anchor
from tests.browser.conftest import PATIENCE_S
from tests.browser.inbox import card_of, steady
from tests.fakes.reviewed import NAME, Reviewed, forge_with_people, reviewing_at

HOSTILE = (
    "<img src=x onerror=alert(1)> [here](https://evil.test) @ada #1 `@ada` www.evil.test\n\n"
    "```suggestion\nrm -rf /\n```\n\n# big"
)


async def signed_in(browser: Browser, on: Reviewed, width: int = 1300) -> Page:
    context = await browser.new_context(viewport={"width": width, "height": 900})
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    await page.goto(on.running.supervisor.login_url())
    return page


async def act_card(page: Page, request: Request) -> Locator:
    """The card of an act, opened in the inbox, once what it would say is there."""
    card = await card_of(page, request)
    await expect(card.locator("[data-role=act]")).to_be_visible()
    await steady(card)
    return card


def home(on: Reviewed) -> str:
    return f"http://127.0.0.1:{on.running.supervisor.port}"


async def test_one_finding_of_two_is_posted_in_other_words(
    browser: Browser, tmp_path: Path
) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            page = await signed_in(browser, on)
            pull = stage.open_pull(f"http://127.0.0.1:{on.port}")
            (request,) = await on.posts()
            card = await act_card(page, request)
            place = card.get_by_role("link", name=f"{NAME}#{pull.number}")
            assert await place.get_attribute("href") == f"{stage.forge.url}/{NAME}/pull/1"
            await expect(card.get_by_text(pull.title)).to_be_visible()

            # Each finding stands below its line, as the forge will show it.
            findings = card.locator("[data-finding]")
            await expect(findings).to_have_count(2)
            critical = card.locator(".bubble.critical")
            await expect(critical.locator(".sev-critical")).to_have_text("critical")
            line = critical.locator("xpath=ancestor::tr/preceding-sibling::tr[1]")
            await expect(line).to_contain_text('found = connection.execute(f"select * from')
            await expect(critical.locator(".bubble-body code").first).to_have_text("number")
            suggested = critical.locator(".suggest tr.add")
            await expect(suggested).to_contain_text("where number = ?")

            # One is left out, and one worded anew; both are said before they are done.
            await expect(card.get_by_role("button", name="Post 2 findings")).to_be_visible()
            medium = card.locator(".bubble.medium")
            await medium.get_by_role("checkbox").uncheck()
            await expect(medium.get_by_text("won't be posted")).to_be_visible()
            summary = card.locator("[data-role=words]").first
            await expect(summary).to_contain_text("Findings: 1 critical.")
            await critical.get_by_text("Edit", exact=True).click()
            field = critical.get_by_role("textbox")
            assert (await field.input_value()).endswith('= ?", (number,))\n```')
            await field.fill('Please use a **parameter** here, not `f""`.')
            await expect(critical.locator(".bubble-body strong")).to_have_text("parameter")
            await expect(card).to_contain_text(f"Post a review with 1 comment on {NAME}#1?")
            shown = await critical.locator(".bubble-body").inner_text()
            await card.get_by_role("button", name="Post 1 of 2 findings").click()

            await on.running.until_soon(lambda: pull.reviews or None, "the review is posted")
            (comment,) = pull.comments
            assert comment["body"] == 'Please use a **parameter** here, not `f""`.'
            assert (comment["path"], comment["line"]) == ("shop/orders.py", 11)
            assert "Findings: 1 critical." in pull.reviews[0]["body"]
            posted = await on.running.until_soon(
                lambda: next((one for one in on.acts() if one.in_part and one.outcome), None),
                "what was posted is another act, and settled",
            )
            assert isinstance(posted.action, Act)
            assert posted.fingerprint != request.fingerprint
            assert [one.body for one in posted.action.comments] == [comment["body"]]
            assert posted.action.body == pull.reviews[0]["body"]

            # Afterwards it is opened on the forge, whose page shows the same words at that line.
            await page.goto(f"{home(on)}/requests/{posted.id}")
            link = page.get_by_role("link", name="Open on GitHub")
            href = await link.get_attribute("href")
            assert href == f"{stage.forge.url}/{NAME}/pull/1#{anchor(pull.reviews[0])}"
            await page.goto(href or "")
            await expect(page.get_by_role("heading", level=1)).to_contain_text(pull.title)
            remark = page.locator(f"#discussion_r{comment['id']}")
            assert await remark.locator(".bubble-body").inner_text() == shown.strip()
            above = remark.locator("xpath=ancestor::tr/preceding-sibling::tr[1]")
            await expect(above).to_contain_text("found = connection.execute(")
            await expect(page.get_by_text("divides by zero")).to_have_count(0)
            await page.context.close()


@pytest.mark.many
async def test_a_review_is_posted_without_its_findings(browser: Browser, tmp_path: Path) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            page = await signed_in(browser, on, width=390)
            pull = stage.open_pull(f"http://127.0.0.1:{on.port}")
            (request,) = await on.posts()
            # Its clone may be gone by now: then each finding stands with the code that it is about.
            shutil.rmtree(on.service.settings.clones)
            card = await act_card(page, request)
            code = card.locator(".bubble.critical").get_by_label("the code")
            await expect(code).to_contain_text("found = connection.execute(")
            await card.get_by_role("button", name="None").click()
            await expect(card.locator(".bubble.off")).to_have_count(2)
            await card.get_by_role("button", name="All").click()
            await expect(card.locator(".bubble.off")).to_have_count(0)
            await card.get_by_role("button", name="None").click()
            await expect(card.get_by_text("No findings.")).to_be_visible()
            await card.get_by_role("button", name="Post review without findings").click()
            await on.running.until_soon(lambda: pull.reviews or None, "the review is posted")
            assert pull.comments == []
            assert "\n\nNo findings.\n" in pull.reviews[0]["body"]
            await page.goto(f"{home(on)}/reviews")
            await page.get_by_role("link", name=f"{NAME}#{pull.number}").click()
            await expect(page.get_by_role("heading", name="divides by zero")).to_be_visible()
            await expect(page.get_by_text("signed").first).to_be_visible()
            await page.goto(f"{home(on)}/reviews")
            await page.get_by_role("button", name="Switch off").click()
            await expect(page.get_by_role("button", name="Switch on")).to_be_visible()
            await page.context.close()


@pytest.mark.many
async def test_hostile_names_and_texts_are_shown_as_they_are(
    browser: Browser, tmp_path: Path
) -> None:
    title = "<img src=x onerror=alert(1)> {{ 7*7 }} \u202e"
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            page = await signed_in(browser, on)
            alerts: list[str] = []
            page.on("dialog", lambda one: alerts.append(one.message))
            stage.forge.commit(
                NAME, "x", {"<b>.py": "x = '<script>alert(1)</script>'\n"}, "x", base="main"
            )
            pull = stage.forge.open_pull(NAME, "x", title=title)
            (request,) = await on.posts()
            card = await act_card(page, request)
            await expect(card.locator(".diff").first).to_contain_text("<script>alert(1)</script>")
            await expect(card).to_contain_text("<img src=x onerror=alert(1)> {{ 7*7 }}")
            # A person's own words may be live on the forge, and aren't on this page.
            bubble = card.locator("[data-finding]")
            await bubble.get_by_text("Edit", exact=True).click()
            await bubble.get_by_role("textbox").fill(HOSTILE)
            await expect(bubble.locator(".bubble-body")).to_contain_text("onerror=alert(1)")
            assert await bubble.locator("img, a").count() == 0
            await page.goto(f"{home(on)}/reviews")
            await expect(page.get_by_text("<img src=x onerror=alert(1)> {{ 7*7 }}")).to_be_visible()
            await page.goto(f"{stage.forge.url}/{NAME}/pull/{pull.number}")
            await expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x")
            assert alerts == []
            await page.context.close()


async def test_what_a_model_wrote_stays_text_on_the_forge_but_for_its_code(
    browser: Browser, tmp_path: Path
) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            page = await signed_in(browser, on)
            await on.service.reconcile.repositories()
            repository = on.service.repository_named(NAME)
            on.service.set_enabled(repository.id, is_enabled=False)
            pull = on.open_pull()
            await on.receipt("skipped")
            target = PullTarget(forge="github", repository=NAME, number=1, head=pull.head_sha)
            finding = Finding(path="shop/cart.py", line=5, severity="high", title="T", body=HOSTILE)
            placed = PlacedFinding("0" * 16, finding, 5, 5)
            act = review_act(target, "comment", HOSTILE, [placed], run_id="ab12")
            request = on.running.parts.gate.ask(
                act, session_id=repository.session_id, origin="reviews"
            )
            card = await act_card(page, request)
            bubble = card.locator("[data-finding]")
            assert await bubble.locator(".bubble-body img, .bubble-body a").count() == 0
            await expect(bubble.locator(".bubble-body code").first).to_have_text("@ada")
            await expect(bubble.locator(".suggest")).to_have_count(0)
            await card.get_by_role("button", name="Post 1 finding").click()
            await on.running.until_soon(lambda: pull.reviews or None, "the review is posted")
            (comment,) = pull.comments
            assert comment["body"] == act.comments[0].body
            await page.goto(f"{on.forge.url}/{NAME}/pull/{pull.number}#{anchor(comment)}")
            for said in (comment, pull.reviews[0]):
                body = page.locator(f"#{anchor(said)} .bubble-body")
                await expect(body).to_contain_text("[here](https://evil.test)")
                assert await body.locator("img, a, h1").count() == 0
                await expect(body.locator("code", has_text="@ada")).to_have_count(1)
            await page.context.close()


@pytest.mark.many
async def test_an_answer_is_posted_in_the_words_that_stand_on_its_card(
    browser: Browser, tmp_path: Path
) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            page = await signed_in(browser, on)
            await on.service.reconcile.repositories()
            repository = on.service.repository_named(NAME)
            on.service.set_enabled(repository.id, is_enabled=False)
            pull = on.open_pull()
            forge_repository = stage.forge.repositories[NAME]
            review = stage.forge.add_review(
                forge_repository, pull, "ada", "", "COMMENTED", pull.head_sha
            )
            wanted = {"path": "shop/cart.py", "line": 5, "body": "Why?"}
            stage.forge.add_beside(forge_repository, pull, "ada", wanted, review)
            facts = {"forge": "github", "repository": NAME, "number": pull.number}
            asked = [
                Act(operation="reply", body="Because.", targets=("review:1234",), **facts),
                Act(operation="resolve", targets=("PRRT_1", "PRRT_2"), **facts),
            ]
            wrong, resolve = (
                on.running.parts.gate.ask(one, session_id=repository.session_id, origin="reviews")
                for one in asked
            )
            target = f"review:{pull.comments[0]['id']}"
            reply = on.running.parts.gate.ask(
                Act(operation="reply", body="Because.", targets=(target,), **facts),
                session_id=repository.session_id,
                origin="reviews",
            )
            card = await card_of(page, resolve)
            await expect(card).to_contain_text(f"resolve 2 threads on {NAME}#1")
            await expect(card.locator(".facts")).to_contain_text("PRRT_1, PRRT_2")
            await expect(card.locator("textarea")).to_have_count(0)
            other = await card_of(page, wrong)
            await expect(other.locator(".facts").first).to_contain_text("1234 (beside the code)")
            card = await act_card(page, reply)
            await card.get_by_text("Edit", exact=True).click()
            words = card.get_by_label("The comment's text, as Markdown")
            assert await words.input_value() == "Because."
            await words.fill("Because of *this*.")
            await card.get_by_role("button", name="Post reply").click()
            await on.running.until_soon(lambda: pull.comments[1:] or None, "the answer")
            assert pull.comments[1]["body"].startswith("Because of *this*.\n\n<!-- gatehouse:act:")
            await page.context.close()


@pytest.mark.many
async def test_hold_and_release_on_the_page(browser: Browser, tmp_path: Path) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            await on.service.reconcile.repositories()
            page = await signed_in(browser, on)
            await page.goto(f"{home(on)}/reviews")
            holds = page.locator("#holds")
            await expect(holds).to_contain_text("Nothing is held.")
            await holds.get_by_label("Hold").select_option("repository")
            await holds.get_by_label("which").fill("no/such")
            await holds.get_by_role("button", name="Hold", exact=True).click()
            await expect(holds.get_by_role("alert")).to_contain_text("no repository is called")
            await holds.get_by_label("Hold").select_option("repository")
            await holds.get_by_label("which").fill(NAME)
            await holds.get_by_label("why").fill("<b>a release</b>")
            await holds.get_by_role("button", name="Hold", exact=True).click()
            await expect(holds).to_contain_text(NAME)
            await expect(holds).to_contain_text(": <b>a release</b>")
            (hold,) = on.service.holds.standing()
            assert (hold.scope, hold.key, hold.why) == ("repository", NAME, "<b>a release</b>")
            await holds.get_by_role("button", name=f"Release {NAME}").click()
            await expect(holds).to_contain_text("Nothing is held.")
            assert on.service.holds.standing() == []
            await page.context.close()
