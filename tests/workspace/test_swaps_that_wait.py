"""What a folder's swap costs while nobody has answered it: what is read for it, and what is kept."""

import os

import pytest

from tests.workspace.conftest import Desk


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The last parts of all paths that are opened from now on."""
    leaves: list[str] = []
    really = os.open

    def noting(path: str, *args: int, **options: int) -> int:
        leaves.append(os.path.basename(path))  # noqa: PTH119  # as the system call has it
        return really(path, *args, **options)

    monkeypatch.setattr(os, "open", noting)
    return leaves


@pytest.mark.parametrize("name", ["README.md", "src"])
async def test_nothing_of_it_is_opened_when_something_else_changes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether a path is swapped is looked at each time, by what it is and not by what is in it."""
    async with desk.running(start=False):
        await desk.walk_host()
        if name == "src":
            for leaf in ("app.py", "util.py"):
                (desk.copy / "src" / leaf).unlink()
            (desk.copy / name).rmdir()
            (desk.copy / name).write_text("flat\n")
        else:
            (desk.copy / name).unlink()
            (desk.copy / name).mkdir()
            (desk.copy / name / "in.txt").write_text("in\n")
        await desk.compared()
        assert set(desk.pending()) == {name}
        (desk.copy / "closed/c.txt").write_text("other\n")
        leaves = opened(monkeypatch)
        async with desk.channel._turn:
            await (await desk.channel._open()).comparison.run({"closed"})
        assert "c.txt" in leaves
        assert name not in leaves
        assert set(desk.pending()) == {name}
