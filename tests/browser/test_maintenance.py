"""A maintenance job from the page: started by the form, due at night, reviewed in the morning, and
its branch taken."""

from datetime import datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from supervisor.core.approvals import status
from supervisor.core.jobs import Job
from supervisor.core.sessions import Session
from supervisor.sessions.scheduled_jobs import JobSchedule
from tests.browser.inbox import approve_button, shown_card, steady
from tests.browser.session_page import page_of
from tests.fakes.clock import FakeClock
from tests.fakes.supervised import Supervised, git, make_repository, settings_in, supervised

CONTAINED = "version: 1\nmodes: {exec: contained}\n"
NOTE = "docs/RECORDED_MAINTENANCE.md"
JOBS = """
version: 1
jobs:
  docs:
    cron: "0 3 * * *"
    workspace: {workspace}
    prompt: Keep the <b>docs</b> in order.
    scope: [docs/**]
    tests: "true"
    branch: yes
"""


async def newest(running: Supervised) -> Session:
    def found() -> Session | None:
        recent = running.parts.sessions.recent()
        return recent[0] if recent and recent[0].kind == "maintenance" else None

    return await running.until(found, "the job's session")


async def sessions_page(page: Page, running: Supervised) -> None:
    await page.goto(f"http://127.0.0.1:{running.supervisor.port}/sessions")


async def test_the_form_starts_a_job_and_its_change_is_reviewed(
    browser: Browser, tmp_path: Path
) -> None:
    workspace = make_repository(tmp_path / "project")
    (tmp_path / "data").mkdir()
    settings = settings_in(tmp_path / "data", CONTAINED, anthropic_api_key="")
    async with supervised(settings) as running:
        other = await running.start(workspace, "sleep", "60")
        async with page_of(browser, running, other) as page:
            await sessions_page(page, running)
            prompt = page.get_by_label("Task")
            await expect(prompt).to_be_hidden()
            await page.get_by_label("Maintain").check()
            await page.get_by_label("Folder").fill(str(workspace))
            await prompt.fill("Keep the docs in order.")
            await page.get_by_label("Scope").fill("docs/** !docs/old/**")
            await page.get_by_text("More:").click()
            await page.get_by_label("Tests of the result").fill("ls docs")
            await page.get_by_role("button", name="Start maintenance").click()
            session = await newest(running)
            change = await running.asked("filesystem")
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/sessions/{session.id}")
            facts = page.locator("#session-facts")
            await expect(facts.locator("[data-role=job]")).to_contain_text("docs/** !docs/old/**")
            result = facts.locator("[data-role=job-result]")
            await expect(result).to_contain_text("1 file, all within docs/**")
            await expect(result).to_contain_text("tests passed; $0.00")
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{change.id}")
            card = shown_card(page, change)
            await steady(card)
            await approve_button(card).click()
            await running.ended(session)
        assert (workspace / NOTE).is_file()


@pytest.mark.many
async def test_a_refused_job_names_the_path_and_leaves_nothing_to_answer(
    browser: Browser, tmp_path: Path
) -> None:
    workspace = make_repository(tmp_path / "project")
    (tmp_path / "data").mkdir()
    settings = settings_in(tmp_path / "data", CONTAINED, anthropic_api_key="")
    async with supervised(settings) as running:
        job = Job(prompt="Tidy.", scope=("docs/**",), tests="echo x > '<b>.py'; echo tried")
        session = await running.start(workspace, kind="maintenance", job=job)
        session = await running.ended(session)
        async with page_of(browser, running, session) as page:
            said = "refused: outside docs/**: <b>.py; tests passed"
            facts = page.locator("#session-facts")
            await expect(facts.locator("[data-role=job-result]")).to_contain_text(said)
            await expect(facts.locator("[data-role=tests]")).to_have_text("tried")
            await expect(page.locator("#take-branch")).to_have_count(0)
            await sessions_page(page, running)
            row = page.locator("tr", has_text="refused: ")
            await expect(row.locator(".state.failed")).to_contain_text(said)
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/")
            await expect(page.locator("[data-left]")).to_have_count(0)


@pytest.mark.many
async def test_a_nightly_job_waits_in_the_morning_and_its_branch_is_taken(
    browser: Browser, tmp_path: Path
) -> None:
    workspace = make_repository(tmp_path / "project")
    (tmp_path / "data/data").mkdir(parents=True)
    settings = settings_in(tmp_path / "data", CONTAINED, anthropic_api_key="")
    async with supervised(settings) as running:
        settings.jobs_file.write_text(JOBS.format(workspace=workspace))
        sessions = running.parts.sessions
        clock = FakeClock(settings.jobs_file.stat().st_mtime)
        schedule = JobSchedule(
            settings.jobs_file, clock, sessions.last_of_job, sessions.start, print
        )
        await schedule.look()
        assert sessions.recent() == []
        clock.advance(86_400)
        await schedule.look()
        session = await running.ended(await newest(running))
        assert session.job_result is not None
        assert session.job_result.waits
        async with page_of(browser, running, session) as page:
            await sessions_page(page, running)
            due = datetime.fromtimestamp(running.parts.clock.now()).strftime("03:00")
            await expect(page.locator("[data-job=docs]")).to_contain_text(due)
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/")
            row = page.locator("[data-left]")
            await expect(row).to_contain_text("1 branch")
            await expect(row.locator("[data-role=job]")).to_contain_text(
                "1 file, all within docs/**; tests passed; committed on gatehouse/docs-"
            )
            await row.get_by_role("button", name="Take into my repository").click()
            await expect(page.locator("#left-taken [data-role=taken]")).to_have_text(
                session.job_result.branch
            )
            await page.reload()
            await expect(page.locator("[data-left]")).to_have_count(0)
        assert git(workspace, "show", "--format=%s", "--name-only", session.job_result.branch) == (
            f"Keep the <b>docs</b> in order.\n\n{NOTE}"
        )
        assert not [one for one in running.requests(session) if status(one) == "pending"]
