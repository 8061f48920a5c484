"""The card of a push in the browser, over a whole supervisor and a real bare repository: it shows
what would move, and its Approve moves exactly that; and the session's button that takes the branch
into the host's repository."""

import subprocess
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.browser.inbox import approve_button, shown_card, steady
from tests.browser.session_page import page_of
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import git, make_repository, settings_in, supervised

COMMIT = "git -c user.name=Bot -c user.email=bot@example.org commit -q"
WORK = (
    "git checkout -q -b fix && mkdir -p .github/workflows"
    " && echo 'on: push' > .github/workflows/a.yml"
    f" && echo '<b>bold</b>' >> README.md && git add . && {COMMIT} -m 'Fix <i>it</i>'"
)


async def test_a_push_is_shown_and_approved(browser: Browser, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    hook = remote / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\necho checking\nuntil [ -e {tmp_path}/go ]; do sleep 0.05; done\n")
    hook.chmod(0o755)
    (tmp_path / "go").touch()
    workspace = make_repository(tmp_path / "project")
    git(workspace, "remote", "add", "origin", str(remote))
    git(workspace, "push", "-q", "origin", "HEAD:main")
    (tmp_path / "go").unlink()
    (tmp_path / "data").mkdir()
    policy = "version: 1\nallow: [filesystem(README.md)]\n"
    async with supervised(settings_in(tmp_path / "data", policy)) as running:
        session = await running.start(
            workspace,
            *agent_command(("/v1/exec", {"command": WORK}), ("/v1/git", {"command": "git push"})),
        )
        running.approve(await running.asked("exec"))
        push = await running.asked("git")
        async with page_of(browser, running, session) as page:
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{push.id}")
            card = shown_card(page, push)
            shown = card.locator("[data-role=push]")
            await expect(shown.get_by_text("fix", exact=True)).to_be_visible()
            flags = shown.locator("[data-role=flag]")
            await expect(flags.first).to_have_text("new branch: fix is not at the remote yet")
            await expect(flags.last).to_contain_text(".github/workflows/a.yml")
            await expect(shown.locator(".commits li")).to_contain_text("Fix <i>it</i>")
            await expect(shown.locator(".commits li")).to_contain_text("Bot <bot@example.org>")
            await expect(shown.get_by_text("<b>bold</b>")).to_be_visible()
            # In colours: a key of YAML.
            await expect(shown.locator("td.code .nt")).to_have_text("on")
            await steady(card)
            await approve_button(card).click()
            # What the remote says is shown while it says it.
            await expect(page.locator("#done")).to_contain_text("Approved: git push")
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{push.id}")
            await expect(card.locator("[data-role=printed]")).to_contain_text("remote: checking")
            await expect(card.locator(".answer .state")).to_have_class("state doing")
            (tmp_path / "go").touch()
            await running.until(lambda: running.parts.queue.get(push.id).settled_at)
        with running.answering(lambda one: "denied"):
            await running.ended(session)
        assert answers(running.output(session))[-1]["outcome"]["ok"]
        async with page_of(browser, running, session) as page:
            await page.get_by_role("button", name="Take into my repository").click()
            await expect(page.locator("[data-role=taken]")).to_have_text("fix")
            again = page.get_by_role("button", name="Take into my repository")
            # The answer to the first press may still be settling.
            await page.wait_for_function("() => !document.querySelector('.htmx-request')")
            await again.click()
            await expect(page.locator("#taken [role=alert]")).to_contain_text(
                "has all commits of `fix` already"
            )
    assert git(remote, "log", "-1", "--format=%s", "fix") == "Fix <i>it</i>"
    assert git(workspace, "rev-parse", "fix") == git(remote, "rev-parse", "fix")
