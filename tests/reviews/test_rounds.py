"""Rounds over real clones: what a repository tells its reader, and that many files hold nobody."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.base.clock import RealClock
from supervisor.reviews.clones import Clones, WantedCode
from supervisor.reviews.core.trust import MOST_SKILLS
from supervisor.reviews.demo.stage import NAME, Stage, staged
from supervisor.reviews.rounds import Rounds
from supervisor.store.engine import open_database


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path / "stage") as found:
        yield found


class LoopMustGoOn(list[str]):
    """Changed files that are looked through only while the loop does other things."""

    loop: asyncio.AbstractEventLoop

    def __iter__(self) -> Iterator[str]:
        went_on = threading.Event()
        self.loop.call_soon_threadsafe(went_on.set)
        assert went_on.wait(10), "the loop stands still meanwhile"
        return super().__iter__()


async def test_skills_are_matched_with_files_beside_everything_else(
    stage: Stage, tmp_path: Path
) -> None:
    forge = stage.forge
    skills = {
        f".claude/skills/s{n:03}/SKILL.md": f"---\nglobs: {'*.md' if n % 2 else 'x/**'}\n---\n{n}"
        for n in range(2 * MOST_SKILLS + 10)
    }
    forge.commit(NAME, "x", {**skills, "x/a.py": "1\n", "CLAUDE.md": "Be kind."}, "A", base="main")
    number = forge.open_pull(NAME, "x", title="X").number
    pull = forge.repositories[NAME].pulls[number]
    token = forge.mint(forge.installation, ["shop"], {"contents": "read"}).value
    wanted = WantedCode(
        name=NAME,
        url=f"{forge.url}/{NAME}.git",
        token=f"x-access-token:{token}",
        number=number,
        base_ref="main",
        base_sha=forge.sha(NAME, "main"),
        head_sha=pull.head_sha,
    )
    clones = Clones(tmp_path / "clones")
    engine = open_database(tmp_path / "gatehouse.db")
    files = LoopMustGoOn(["x/a.py"])
    files.loop = asyncio.get_running_loop()
    try:
        async with clones.checkout(wanted) as checkout:
            told, own = await Rounds(engine, RealClock(), clones).guidance(
                checkout, checkout.head, files
            )
    finally:
        engine.dispose()
    assert [(one.source, one.text) for one in told] == [("CLAUDE.md", "Be kind.")]
    assert [one.text for one in own] == [str(n) for n in range(0, 2 * MOST_SKILLS, 2)]
