"""`gatehouse demo` in a browser: the review of a pull request comes to the inbox, one finding is
left out, another worded anew, and Approve posts exactly that."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from supervisor.core.forge_acts import Act
from tests.browser.conftest import PATIENCE_S
from tests.browser.inbox import approve_button, card_of, steady
from tests.fakes.reviewed import NAME, Reviewed, forge_with_people, reviewing_at


async def signed_in(browser: Browser, on: Reviewed) -> Page:
    context = await browser.new_context(viewport={"width": 1200, "height": 900})
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    await page.goto(on.running.supervisor.login_url())
    return page


async def test_from_the_webhook_to_approve(browser: Browser, tmp_path: Path) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            page = await signed_in(browser, on)
            pull = stage.open_pull(on.forge.hook[0] if on.forge.hook else "")
            (request,) = await on.posts()
            card = await card_of(page, request)
            findings = card.locator(".finding")
            await expect(findings).to_have_count(2)
            await expect(findings.first).to_contain_text("select * from orders where number")
            words = await findings.first.locator("textarea").input_value()
            assert words.startswith("**critical: SQL is made of what the caller gives**")
            assert words.endswith('("select * from orders where number = ?", (number,))\n```')
            await findings.last.locator("input[type=checkbox]").uncheck()
            await findings.first.locator("textarea").fill("Please use a parameter here.")
            await steady(card)
            await approve_button(card).click()
            await on.running.until_soon(lambda: pull.reviews or None, "the review is posted")
            (comment,) = pull.comments
            assert comment["body"] == "Please use a parameter here."
            assert "Findings: 1 critical." in pull.reviews[0]["body"]
            await page.goto(f"http://127.0.0.1:{on.running.supervisor.port}/reviews")
            await page.get_by_role("link", name=f"{NAME}#{pull.number}").click()
            await expect(
                page.get_by_role("strong").filter(has_text="divides by zero")
            ).to_be_visible()
            await expect(page.get_by_text("signed").first).to_be_visible()
            await page.goto(f"http://127.0.0.1:{on.running.supervisor.port}/reviews")
            await page.get_by_role("button", name="Switch off").click()
            await expect(page.get_by_role("button", name="Switch on")).to_be_visible()
            await page.context.close()


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
            stage.forge.open_pull(NAME, "x", title=title)
            (request,) = await on.posts()
            card = await card_of(page, request)
            await expect(card.locator(".finding")).to_contain_text("<script>alert(1)</script>")
            await page.goto(f"http://127.0.0.1:{on.running.supervisor.port}/reviews")
            await expect(page.get_by_text("<img src=x onerror=alert(1)> {{ 7*7 }}")).to_be_visible()
            assert alerts == []
            await page.context.close()


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
            stage.forge.add_beside(forge_repository, pull, review, wanted)
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
            await expect(card.locator(".facts")).to_contain_text("threads PRRT_1, PRRT_2")
            await expect(card.locator("textarea")).to_have_count(0)
            other = await card_of(page, wrong)
            await expect(other.locator(".facts")).to_contain_text("1234 (beside the code)")
            card = await card_of(page, reply)
            await expect(card).to_contain_text("Reply to a comment")
            words = card.get_by_label("the comment's text, as markdown")
            assert await words.input_value() == "Because."
            await words.fill("Because of *this*.")
            await steady(card)
            await approve_button(card).click()
            await on.running.until_soon(lambda: pull.comments[1:] or None, "the answer")
            assert pull.comments[1]["body"].startswith("Because of *this*.\n\n<!-- gatehouse:act:")
            await page.context.close()


@pytest.mark.many
async def test_hold_and_release_on_the_page(browser: Browser, tmp_path: Path) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        async with reviewing_at(stage, tmp_path) as on:
            await on.service.reconcile.repositories()
            page = await signed_in(browser, on)
            await page.goto(f"http://127.0.0.1:{on.running.supervisor.port}/reviews")
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
