"""The card of a scheduled job in a browser: what is pushed, within what scope, at what cost; and
the pull request that its approval makes."""

import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from supervisor.reviews.demo.stage import JOB
from supervisor.reviews.job_schedule import OWN
from tests.browser.test_reviews import act_card, home, signed_in
from tests.fakes.reviewed import NAME, forge_with_people, reviewing_at

PICTURES = os.environ.get("JOB_PICTURES", "")


@pytest.mark.xdist_group("browser-jobs")
async def test_the_card_shows_what_is_pushed_and_its_approval_opens_the_pull_request(
    browser: Browser, tmp_path: Path
) -> None:
    with forge_with_people(tmp_path / "stage") as stage:
        stage.plan_night()
        async with reviewing_at(stage, tmp_path, anthropic_api_key="") as on:
            await on.service.schedule.run_once_known(NAME, JOB, by="ada")

            def proposed() -> object:
                return next((one for one in on.acts() if one.action.operation == "open-pr"), None)  # type: ignore[union-attr]

            request = await on.running.until_soon(proposed, "the job's act")
            page = await signed_in(browser, on)
            card = await act_card(page, request)  # type: ignore[arg-type]
            await expect(card.get_by_text("1 file, all within docs/**").first).to_be_visible()
            diff = card.locator(".file", has_text="docs/orders.md")
            await expect(diff.locator("tr.rem")).to_contain_text("orders(database, limit=100)")
            await expect(diff.locator("tr.add")).to_contain_text("all_orders(database)")
            await expect(
                card.locator(".prose", has_text="Made by the job docs-drift")
            ).to_be_visible()
            message = card.get_by_label("the message of the commit")
            await expect(message).to_contain_text("1 file, all within docs/**")
            await pictured(page, "card")
            assert not stage.forge.repositories[NAME].pulls
            await card.get_by_role("button", name="Open pull request").click()
            await on.running.done(request)  # type: ignore[arg-type]
            (pull,) = stage.forge.repositories[NAME].pulls.values()
            assert pull.title == "Docs: what the code does"
            assert "all_orders(database)" in pull.body
            shown = page.get_by_role("link", name="Open on GitHub")
            assert await shown.get_attribute("href") == f"{stage.forge.url}/{NAME}/pull/1"
            await page.goto(f"{home(on)}/repos/1")
            jobs = page.locator("#jobs")
            await jobs.get_by_role("button", name="Pause the job docs-drift").click()
            await expect(jobs.get_by_text("paused", exact=True)).to_be_visible()
            await pictured(page, "repository")
            await jobs.get_by_role("button", name="Resume the job docs-drift").click()
            await expect(jobs.get_by_text("paused", exact=True)).to_have_count(0)
            # That Gatehouse itself paused one is on every page, at once.
            repository = on.service.repository_named(NAME)
            on.service.schedule.pause(repository, JOB, by=OWN, why="it failed 3 times")
            banner = page.get_by_text("it failed 3 times")
            await expect(banner.first).to_be_visible()
            on.service.schedule.resume(repository, JOB, by="ada")
            await expect(page.locator("#banner", has_text="it failed 3 times")).to_have_count(0)
            await jobs.get_by_role("link", name="proposed").click()
            await expect(page.get_by_role("heading", name="What was asked")).to_be_visible()
            await expect(page.locator(".file tr.add")).to_contain_text("all_orders(database)")
            await pictured(page, "run")


async def pictured(page: Page, name: str) -> None:
    """Take pictures of the page, where they are wanted."""
    for width, scheme in ((1300, "light"), (1300, "dark"), (390, "light")) if PICTURES else ():
        await page.set_viewport_size({"width": width, "height": 1400})
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.screenshot(path=f"{PICTURES}/{name}-{width}-{scheme}.png")
    await page.set_viewport_size({"width": 1300, "height": 900})
