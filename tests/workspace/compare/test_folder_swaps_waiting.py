"""What a folder's swap costs while nobody has answered it: what is read for it, and what is
kept."""

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


@pytest.mark.parametrize("how", ["names", "targets"])
async def test_names_that_no_card_and_no_record_should_hold(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Two thousand names may take eight megabytes: so many are no question, and each request
    stays small."""
    monkeypatch.setattr("supervisor.workspace.compare.folder_swaps.MOST_NAMED_BYTES", 16 << 10)
    long = "x" * 250
    async with desk.running(start=False):
        (desk.copy / "README.md").unlink()
        (desk.copy / "README.md").mkdir()
        for number in range(65):
            path = (
                desk.copy / "README.md" / (f"{number:02}{long}" if how == "names" else str(number))
            )
            path.symlink_to(long if how == "targets" else "here")
        await desk.compared()
        assert not desk.pending()
        assert "take more than 16 kB" in desk.channel.refused()["README.md"]
        for number in range(10):
            (
                desk.copy / "README.md" / (f"{number:02}{long}" if how == "names" else str(number))
            ).unlink()
        await desk.compared()
        assert len(desk.pending()["README.md"].action.steps) == 55  # type: ignore[union-attr]
