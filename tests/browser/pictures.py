"""Makes the pictures of the README and of docs in Chromium: `make pictures`.

What is shipped is what is shown: the recorded review of `gatehouse review`, the review of
`gatehouse demo`, both as processes, and whole supervisors with agents that ask. Names as arguments
(`inbox review`) make only these.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright, expect

from supervisor.settings import ROOT
from tests.browser.conftest import ARGS
from tests.browser.session_page import page_of
from tests.doors.conftest import Door, until
from tests.fakes import registry
from tests.fakes.claude_code import claude_binary
from tests.fakes.messages_server import MessagesServer, calls, text, tool_use
from tests.fakes.readers import SaidReader, read_by, remark, said
from tests.fakes.reviewed import NAME, forge_with_people, reviewing_at
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import git, make_repository, settings_in, supervised

TOKENS = """\
import re

WORD = re.compile(r"[a-z]+")


def unquote(text: str) -> str:
    body = text[1:-1]
    return body
"""
AGENT = """\
echo "Reading src/parser/tokens.py"
sed -i 's/return body/return re.sub(r"\\\\\\\\(.)", r"\\\\1", body)/' src/parser/tokens.py
echo "Fixed: escapes inside quotes were dropped"
until [ -e docs ]; do sleep 0.05; done
echo "Adding a note to the changelog"
echo "- unquote keeps escapes" >> CHANGELOG.md
"""
CART = """\
from shop.prices import price_of


def total(items):
    total = sum(price_of(item) for item in items)
    return total
"""
WIDE = {"width": 1300, "height": 860}


async def main(*names: str) -> None:
    async with async_playwright() as playwright:
        chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=chromium, args=ARGS)
        for name, take in PICTURES.items():
            if not names or name in names:
                with tempfile.TemporaryDirectory() as folder:
                    await take(browser, Path(folder), ROOT / "docs" / f"{name}.png")
        await browser.close()


@contextlib.asynccontextmanager
async def _signed_in(browser: Browser, url: str) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport=WIDE)
    page = await context.new_page()
    await page.goto(url)
    await page.wait_for_selector('#live[data-state="on"]')
    yield page
    await context.close()


async def _shown(page: Page, target: Path) -> None:
    """Take the picture once the card answers: one that has just come looks as if it didn't."""
    await page.wait_for_selector("[data-settling]", state="detached")
    await page.mouse.move(0, 0)
    await page.screenshot(path=target)


async def _inbox(browser: Browser, folder: Path, target: Path) -> None:
    """What `make up` shows without a key: the recorded model asks for one action of each kind.
    Beside it another agent works in another folder."""
    door = Door(ROOT / ".venv/bin/gatehouse", folder)
    door.is_warm = False
    workspace = make_repository(folder / "query-lang", {"src/parser/tokens.py": TOKENS})
    (workspace / "src/parser/tokens.py").write_text(TOKENS.replace("body", "inside"))
    shop = make_repository(folder / "shop", {"cart.py": CART})
    policy = str(ROOT / "policy/examples/strict.yaml")
    words = ("review", "--workspace", str(workspace))
    change = (
        "sed -i 's/total = sum/total = discounted/' cart.py; curl -s https://rates.example.org/"
    )
    try:
        door.start(*words, GATEHOUSE_POLICY=policy, ANTHROPIC_API_KEY="")
        await asyncio.to_thread(until, lambda: len(door.waiting()) >= 3, "what the model asks")
        door.start("run", "--workspace", str(shop), "--", "sh", "-c", f"{change}; sleep 600")
        await asyncio.to_thread(until, lambda: len(door.waiting()) >= 5, "what the other asks")
        async with _signed_in(browser, door.ok("url").strip()) as page:
            await page.locator("[data-row]", has_text="cart.py").locator("[data-open]").click()
            await page.locator("#pane .diff").first.wait_for()
            await _shown(page, target)
    finally:
        door.end()


async def _review(browser: Browser, folder: Path, target: Path) -> None:
    """The inbox of `gatehouse demo`, once its review is there."""
    async with _demo(browser, folder) as page:
        await page.locator("[data-row]", has_text="post a review").locator("[data-open]").click()
        await page.locator("#pane .bubble").first.wait_for()
        await _shown(page, target)


async def _job(browser: Browser, folder: Path, target: Path) -> None:
    """The card of its nightly job, once that waits."""
    async with _demo(browser, folder) as page:
        row = page.locator("[data-row]", has_text="open a pull request")
        await row.locator("[data-open]").click()
        await page.locator("#pane .file tr.add").first.wait_for()
        await _shown(page, target)


@contextlib.asynccontextmanager
async def _demo(browser: Browser, folder: Path) -> AsyncIterator[Page]:
    """The inbox of `gatehouse demo`, once its review and its job wait."""
    door = Door(ROOT / ".venv/bin/gatehouse", folder)
    door.is_warm = False
    try:
        demo = door.start("demo", XDG_CACHE_HOME=str(folder / "cache"))
        printed = await asyncio.to_thread(demo.until_printed, "was opened; its review")
        door.data = Path(printed.partition("GATEHOUSE_DATA=")[2].split()[0])
        await asyncio.to_thread(until, lambda: len(door.waiting()) >= 2, "review and job")
        async with _signed_in(browser, door.ok("url").strip()) as page:
            await page.set_viewport_size({"width": 1300, "height": 1260})
            yield page
    finally:
        door.end()


async def _session(browser: Browser, folder: Path, target: Path) -> None:
    """A session of a whole supervisor that has ended: what it applied, and what undoing one
    change of it would do."""
    policy = "version: 1\nallow: [filesystem(src/**), filesystem(*.md)]\n"
    files = {"src/parser/tokens.py": TOKENS, "CHANGELOG.md": "# Changes\n", "fix.sh": AGENT}
    workspace = make_repository(folder / "query-lang", files)
    (folder / "whole").mkdir()
    async with supervised(settings_in(folder / "whole", policy)) as running:
        session = await running.start(workspace, "sh", "fix.sh")
        await running.until(
            lambda: (workspace / "src/parser/tokens.py").read_text() != TOKENS or None
        )
        (workspace / "docs").mkdir()
        session = await running.ended(session)
        async with page_of(browser, running, session) as page:
            await page.set_viewport_size(WIDE)
            await page.goto(f"{page.url}/changes")
            await page.get_by_role("button", name="Undo src/parser/tokens.py").click()
            await page.locator("[data-role=undo-now]").wait_for()
            await expect(page.get_by_text("Reading…", exact=True)).to_have_count(0)
            await page.screenshot(path=target)


async def _push(browser: Browser, folder: Path, target: Path) -> None:
    """The card of a push of a whole supervisor, before it is answered."""
    remote, workspace = (
        folder / "query-lang.git",
        make_repository(folder / "pushing", {"a.py": "\n"}),
    )
    git(workspace, "init", "-q", "--bare", str(remote))
    git(workspace, "remote", "add", "origin", str(remote))
    git(workspace, "push", "-q", "origin", "HEAD:main")
    work = (
        "git checkout -q -b unquote-escapes"
        " && printf 'import re\\n\\nESCAPE = re.compile(r\"x\")\\n' > a.py"
        " && mkdir -p .github/workflows && echo 'on: push' > .github/workflows/test.yml"
        " && git add ."
        " && git -c user.name=Claude -c user.email=agent@example.org commit -q -m 'Keep escapes'"
    )
    asking = (("/v1/exec", {"command": work}), ("/v1/git", {"command": "git push -u origin HEAD"}))
    (folder / "pushes").mkdir()
    async with supervised(settings_in(folder / "pushes")) as running:
        session = await running.start(workspace, *agent_command(*asking))
        running.approve(await running.asked("exec"))
        push = await running.asked("git")
        async with page_of(browser, running, session) as page:
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{push.id}")
            await page.locator("#pane .commits").wait_for()
            await page.wait_for_selector("[data-settling]", state="detached")
            await page.locator("#pane").screenshot(path=target)
        running.deny(push)


async def _left(browser: Browser, folder: Path, target: Path) -> None:
    """The inbox in the morning: a session has ended, and left changes and a push."""
    remote = folder / "night.git"
    workspace = make_repository(folder / "night-work", {"a.py": "\n"})
    git(workspace, "init", "-q", "--bare", str(remote))
    git(workspace, "remote", "add", "origin", str(remote))
    work = (
        "git checkout -q -b fix-dates && for one in dates parser report; do"
        ' echo "# $one" > $one.md; done && git add .'
        " && git -c user.name=Claude -c user.email=agent@example.org commit -q -m 'Fix dates'"
    )
    asking = (
        ("/v1/exec", {"command": work}),
        ("/v1/git", {"command": "git push origin fix-dates"}),
    )
    (folder / "left").mkdir()
    policy = "version: 1\nmodes: {exec: contained}\n"
    async with supervised(settings_in(folder / "left", policy)) as running:
        session = await running.start(workspace, *agent_command(*asking))
        await running.asked("git")
        async with page_of(browser, running, session) as page:
            reason = "MAX_UPTIME was reached"
            await running.parts.sessions.stop(session.id, reason=reason, by="gatehouse")
            await running.ended(session)
            await page.set_viewport_size(WIDE)
            await page.goto(f"http://127.0.0.1:{running.supervisor.port}/")
            await _shown(page, target)


async def _agents(browser: Browser, folder: Path, target: Path) -> None:
    """Claude Code, started by its name, asks before a tool of its own runs."""
    claude = claude_binary()
    assert claude is not None, "claude-agent-sdk has no CLI for this platform"
    (folder / "bin").mkdir()
    (folder / "bin/claude").symlink_to(claude)
    (folder / "agents").mkdir()
    workspace = make_repository(folder / "query-parser", {"Makefile": "test:\n\ttrue\n"})
    tool = {"command": "make test", "description": "Run the tests before I change anything"}
    key, host = "sk-ant-of-a-picture", "models.example.org"
    script = [calls(tool_use("Bash", tool)), text("Done.")]
    with MessagesServer(script, follow="conversation", api_key=key) as model:
        settings = settings_in(
            folder / "agents",
            f"version: 1\nallow: [network(127.0.0.1:{model.port})]\nask: [exec(make *)]\n",
            anthropic_api_key=key,
            anthropic_base_url=f"http://{host}:{model.port}",
        )
        async with supervised(settings, names={host: ("127.0.0.1",)}) as running:
            words = ("claude", "-p", "Fix the parser.")
            search_path = f"{folder / 'bin'}:{os.defpath}"
            session = await running.start(
                workspace, *words, agent="claude", search_path=search_path
            )
            asked = await running.asked("exec")
            async with page_of(browser, running, session) as page:
                await page.set_viewport_size(WIDE)
                await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{asked.id}")
                await _shown(page, target)
            running.deny(asked)


async def _rounds(browser: Browser, folder: Path, target: Path) -> None:
    """A review's page after four pushes: what became of each finding."""
    name, find = "def mean(items):\n", "def find(database, number):\n"
    total = "    return sum(items) / len(items)\n"
    sql = '    return database.execute(f"select {number}").fetchone()\n'
    safe = '    return database.execute("select ?", [number]).fetchone()\n'
    found = [
        remark(severity="critical", path="shop/orders.py", line=2, quote=sql.strip(),
               title="SQL is made of what the caller gives"),
        remark(severity="high", path="shop/stats.py", line=2, quote=total.strip(),
               title="An empty list divides by zero"),
        remark(severity="low", path="shop/stats.py", line=1, quote=name.strip(),
               title="The name says little"),
        remark(severity="high", path="shop/orders.py", line=1, quote=find.strip(),
               title="The connection is never closed"),
    ]  # fmt: skip
    rounds = [found[:3], found, found[1:], found[3:]]
    (folder / "rounds").mkdir()
    rules = folder / "rounds" / "acts.yaml"
    rules.write_text("version: 1\nallow: [review(* */*)]\n")
    with forge_with_people(folder / "rounds-stage") as stage:
        async with reviewing_at(stage, folder / "rounds", policy_file=rules) as on:
            left = list(rounds)
            read_by(on, SaidReader(lambda *_: said(left.pop(0))))
            pull = on.open_pull({"shop/stats.py": name + total, "shop/orders.py": find + sql})
            pushes = (
                {"README.md": "# Shop\n"},
                {"shop/orders.py": find + safe},
                {"shop/stats.py": name + "    return sum(items) / max(1, len(items))\n"},
            )
            for files in (None, *pushes):
                if files is not None:
                    on.forge.push(NAME, pull.number, files, "More")
                head = pull.head_sha

                def is_reviewed(head: str = head) -> bool | None:
                    return any(one.head_sha == head for one in on.receipts(pull.number)) or None

                await on.running.until_soon(is_reviewed, "the round")
            context = await browser.new_context(viewport={"width": 1100, "height": 1100})
            page = await context.new_page()
            await page.goto(on.running.supervisor.login_url())
            await page.goto(f"http://127.0.0.1:{on.running.supervisor.port}/reviews")
            await page.locator("tbody a").first.click()
            await page.get_by_text("Findings over the rounds").wait_for()
            await page.screenshot(path=target)
            await context.close()


async def _install(browser: Browser, folder: Path, target: Path) -> None:
    """The card of an install of a whole supervisor, before it is answered."""
    workspace = make_repository(
        folder / "query-lang", {"package.json": '{"name": "query-lang", "version": "1.0.0"}\n'}
    )
    with registry.serving() as index:
        last_week = (datetime.now(UTC) - timedelta(days=2)).isoformat()
        script = {"scripts": {"postinstall": "node setup.js"}}
        index.add_npm("date-format-range", "4.2.0", dependencies={"tiny-ranges": "^1.1.0"})
        index.add_npm("tiny-ranges", "1.1.3")
        index.add_npm("lodahs", "1.0.2", published=last_week, **script)
        (workspace / ".npmrc").write_text(f"registry={index.url}/\n")
        (folder / "installs").mkdir()
        policy = f"version: 1\nallow: [network(127.0.0.1:{index.port})]\n"
        call = ("/v1/packages", {"command": "npm install date-format-range lodahs"})
        async with supervised(settings_in(folder / "installs", policy)) as running:
            session = await running.start(workspace, *agent_command(call))
            install = await running.asked("packages")
            async with page_of(browser, running, session) as page:
                await page.goto(f"http://127.0.0.1:{running.supervisor.port}/requests/{install.id}")
                await page.locator("#pane .packages").wait_for()
                await page.wait_for_selector("[data-settling]", state="detached")
                await page.locator("#pane").screenshot(path=target)
            running.deny(install)


type Take = Callable[[Browser, Path, Path], Awaitable[None]]
PICTURES: dict[str, Take] = {
    "inbox": _inbox,
    "session": _session,
    "push": _push,
    "install": _install,
    "left": _left,
    "agents": _agents,
    "review": _review,
    "job": _job,
    "rounds": _rounds,
}

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
