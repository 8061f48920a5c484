"""The card of an install in the browser, over a whole supervisor and a real npm: it shows what
would come, and what must not be overlooked; the box lets install scripts run."""

from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.inbox import approve_button, shown_card, steady
from tests.browser.session_page import page_of
from tests.fakes import registry
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import make_repository, settings_in, supervised


async def test_an_install_is_shown_and_approved_with_its_scripts(
    browser: Browser, tmp_path: Path
) -> None:
    workspace = make_repository(
        tmp_path / "project", {"package.json": '{"name": "app", "version": "1.0.0"}\n'}
    )
    (tmp_path / "data").mkdir()
    with registry.serving() as index:
        scripts = {"postinstall": "echo ran > ../../ran.txt"}
        index.add_npm("lodahs", "1.0.0", scripts=scripts, license="<b>MIT</b>")
        (workspace / ".npmrc").write_text(f"registry={index.url}/\n")
        policy = f"version: 1\nallow: [network(127.0.0.1:{index.port}), filesystem(**)]\n"
        async with supervised(settings_in(tmp_path / "data", policy)) as running:
            call = ("/v1/exec", {"command": "npm install lodahs"})
            session = await running.start(workspace, *agent_command(call))
            install = await running.asked("packages")
            async with page_of(browser, running, session) as page:
                await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{install.id}")
                card = shown_card(page, install)
                shown = card.locator("[data-role=install]")
                await expect(shown.get_by_text("1 added")).to_be_visible()
                row = shown.locator(".packages li")
                await expect(row).to_contain_text("lodahs")
                await expect(row).to_contain_text("<b>MIT</b>")
                flags = shown.locator("[data-role=flag]")
                await expect(flags.first).to_contain_text("is not the index that you use")
                await expect(flags.nth(1)).to_have_text("one edit from the popular `lodash`")
                await expect(flags.last).to_have_text("has install scripts")
                await shown.get_by_role("checkbox").check()
                await steady(card)
                await approve_button(card).click()
                await running.until(lambda: running.parts.queue.get(install.id).settled_at)
            await running.ended(session)
            assert answers(running.output(session))[-1]["outcome"]["ok"]
            (line,) = running.audit("install_scripts_allowed")
            assert line["request"] == install.id
    assert (workspace / "ran.txt").read_text() == "ran\n"
