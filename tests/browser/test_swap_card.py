"""A folder that the agent put in a file's place, and the other way round, in the browser over a
real workspace: one card that shows all of it, and one answer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from supervisor.workspace.channel import WorkspaceChannel
from supervisor.workspace.copy.snapshot import make_copy
from tests.browser.inbox import approve_button, deny_button
from tests.browser.operator_site import Site
from tests.browser.test_diff_cards import Desk, cards, until


@pytest_asyncio.fixture(loop_scope="session")
async def desk(site: Site, tmp_path: Path) -> AsyncIterator[Desk]:
    host, folder = tmp_path / "host", tmp_path / "session"
    (host / "parser/tests").mkdir(parents=True)
    for name in ("parser/lexer.py", "parser/grammar.py", "parser/tests/test_lexer.py", "tool.py"):
        (host / name).write_text(f'"""{name}"""\n\nvalue = 1\n')
    channel = WorkspaceChannel(
        session_id="one", workspace=host, folder=folder, gate=site.parts.gate
    )
    site.parts.workspace_of = lambda session_id: channel if session_id == "one" else None  # type: ignore[assignment, return-value, method-assign]
    site.parts.gate.handlers.on_ready("filesystem", "workspace", channel.carry_out)
    await make_copy(host, folder / "merged")
    async with channel._turn:
        await channel._open()
    yield Desk(site, host, channel, folder / "merged")
    await channel.stop()


async def compared(desk: Desk) -> None:
    async with desk.channel._turn:
        await desk.channel._now.comparison.run(None)


@pytest.mark.many
async def test_a_file_in_a_folders_place(desk: Desk, page: Page) -> None:
    for name in ("lexer.py", "grammar.py", "tests/test_lexer.py"):
        (desk.copy / "parser" / name).unlink()
    (desk.copy / "parser/tests").rmdir()
    (desk.copy / "parser").rmdir()
    (desk.copy / "parser").write_text("one file\nfor all of it\n")
    await compared(desk)
    card = cards(page)
    await expect(card).to_have_count(1)
    await expect(card.locator("[data-role=action]")).to_have_text(
        "The exact action: swap parser: the folder with 4 paths in it for a file"
    )
    swap = card.locator("[data-role=swap]")
    await expect(swap.get_by_text("4 paths in the folder disappear")).to_be_visible()
    await expect(swap.locator("p code, summary code")).to_have_text([
        "parser/tests/test_lexer.py", "parser/tests", "parser/lexer.py", "parser/grammar.py",
    ])  # fmt: skip
    await expect(card.locator(".diff tr.add").first).to_contain_text("one file")
    gone = swap.locator("details", has_text="parser/lexer.py")
    await gone.locator("summary").click()
    await expect(gone.locator("tr.rem").first).to_contain_text("parser/lexer.py")
    await approve_button(card).click()
    await until(page, lambda: (desk.host / "parser").is_file())


async def test_a_folder_in_a_files_place(desk: Desk, page: Page) -> None:
    (desk.copy / "tool.py").unlink()
    (desk.copy / "tool.py/bin").mkdir(parents=True)
    (desk.copy / "tool.py/main.py").write_text("key = 'x'\n")
    (desk.copy / "tool.py/bin/run").write_text("#!/bin/sh\nexec true\n")
    (desk.copy / "tool.py/bin/run").chmod(0o755)
    await compared(desk)
    card = cards(page)
    await expect(card.locator("[data-role=action]")).to_have_text(
        "The exact action: swap tool.py: the file for a folder with 3 paths in it"
    )
    await expect(card.locator("#card-title")).to_have_text("Put a folder where a file is")
    swap = card.locator("[data-role=swap]")
    await expect(swap.get_by_text("3 paths appear in the folder")).to_be_visible()
    await expect(
        swap.locator("details", has_text="tool.py/main.py").locator("tr.add")
    ).to_contain_text("key")
    await expect(swap.locator("[data-role=warning]")).to_have_text(
        "new-executable: the file becomes executable"
    )
    await deny_button(card).click()
    await expect(page.locator("#pane .answer.settled .state")).to_have_text("denied by you")
    assert (desk.host / "tool.py").is_file()
