"""A thousand ways of piecing a repository's folder together over several changes, all of them
allowed by a rule or approved: git takes none for a repository, and each is denied with the reason.

Each sequence has a folder of its own, and all of them take their next step before the next
comparison. Unless it is told the number of sequences (`SEQUENCES=1000`, as `make fuzz` does), a
share of them is tried.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from supervisor.core.approvals import explanation, status
from supervisor.store import requests as store
from tests.fakes.gated import answer_all
from tests.workspace.conftest import SESSION, Desk

SHARE = 150
SEQUENCES = int(os.environ.get("SEQUENCES", SHARE))
POLICY = 'version: 1\nallow: ["filesystem(**)"]\n'
WHY = "takes this folder for a repository's own"
HEADS = (
    "ref: refs/heads/main\n",
    "ref:\t refs/x",
    "0123456789abcdef0123456789abcdef01234567\n",
    "A" * 64,
    "->refs/heads/main",
)

# A step: what the agent does in its copy below the sequence's folder.
type Step = Callable[[Path], None]


def put(name: str, text: str) -> Step:
    def step(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if text.startswith("->"):
            path.symlink_to(text[2:])
        else:
            path.write_text(text)

    return step


def folder_of(name: str, dice: random.Random) -> list[Step]:
    """objects or refs: empty, with something in it at some depth, as a program, or as a link to
    a folder elsewhere."""
    match dice.randrange(5):
        case 0:
            return [lambda folder: (folder / name).mkdir(parents=True, exist_ok=True)]
        case 1:
            return [put(f"elsewhere-{name}/x", "x\n"), put(name, f"->elsewhere-{name}")]
        case 2:
            return [
                put(f"not-{name}/a", "a\n"),
                lambda folder: moved(folder / f"not-{name}", folder / name),
            ]
        case 3:
            return [put(name, "#!/bin/sh\n"), lambda folder: (folder / name).chmod(0o755)]
        case _:
            return [put(f"{name}/{'a/' * dice.randrange(3)}x", "x\n")]


def head(dice: random.Random) -> list[Step]:
    """HEAD: at once, under another name first, as something else first, or removed and brought
    back."""
    text = dice.choice(HEADS)
    match dice.randrange(4):
        case 0:
            return [put("HEAD", text)]
        case 1:
            return [
                put("notes.txt", text),
                lambda folder: moved(folder / "notes.txt", folder / "HEAD"),
            ]
        case 2:
            return [put("HEAD", "no reference\n"), put("HEAD", text)]
        case _:
            return [put("HEAD", text), lambda folder: (folder / "HEAD").unlink(), put("HEAD", text)]


def moved(old: Path, new: Path) -> None:
    old.rename(new)


def a_sequence(dice: random.Random) -> list[Step]:
    """Steps in an order that keeps those of each piece, with some of them at the same time."""
    is_worktree = dice.random() < 0.15
    if is_worktree:  # a worktree's own folder: the rest is elsewhere
        parts = [head(dice), [put("commondir", "../main\n")], [put("gitdir", "../.git\n")]]
        parts += [[put("../main/objects/x", "x\n"), put("../main/refs/x", "x\n")]]
    else:
        parts = [head(dice), folder_of("objects", dice), folder_of("refs", dice)]
    parts.append([put("config", '[core]\n\tfsmonitor = "touch ran"\n')])
    order = [at for at, part in enumerate(parts) for _ in part]
    dice.shuffle(order)
    waiting = [iter(part) for part in parts]
    steps = [next(waiting[at]) for at in order]
    if (
        not is_worktree and dice.random() < 0.2
    ):  # all of it under another name, which the folder itself has until the end
        return [_elsewhere(step) for step in steps] + [_home]
    if dice.random() < 0.1:  # in the place of a file
        return [
            lambda folder: (
                folder.parent.mkdir(parents=True, exist_ok=True),
                folder.write_text("a file\n"),
            ),
            _instead(steps),
        ]  # type: ignore[list-item, return-value]
    return [_together(steps)] if dice.random() < 0.2 else steps


def _elsewhere(step: Step) -> Step:
    return lambda folder: step(folder.with_name(f"{folder.name}-apart") / "in")


def _home(folder: Path) -> None:
    moved(folder.with_name(f"{folder.name}-apart") / "in", folder)


def _instead(steps: list[Step]) -> Step:
    def step(folder: Path) -> None:
        folder.unlink()
        _together(steps)(folder)

    return step


def _together(steps: list[Step]) -> Step:
    def step(folder: Path) -> None:
        for one in steps:
            one(folder)

    return step


def rounds(sequences: dict[str, list[Step]]) -> Iterator[list[tuple[str, Step]]]:
    while any(sequences.values()):
        yield [(name, steps.pop(0)) for name, steps in sequences.items() if steps]


def taken_for_repositories(root: Path, names: list[str]) -> list[str]:
    """Those that git itself takes for a repository's own folder."""
    script = 'while read -r name; do git rev-parse --resolve-git-dir "$name" 2>/dev/null; done'
    done = subprocess.run(
        ["bash", "-c", script],
        input="".join(f"{name}\n" for name in names),
        text=True,
        capture_output=True,
        cwd=root,
        check=False,
    )
    return done.stdout.split()


async def test_no_way_of_piecing_a_repository_together_lands(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    dice = random.Random(19)
    desk = Desk(tmp_path / "data", host, policy=POLICY)
    names = [f"s{number}/{'deep/' * dice.randrange(2)}repo" for number in range(SEQUENCES)]
    sequences = {name: a_sequence(dice) for name in names}
    async with desk.running(start=False):
        for together in rounds(sequences):
            for name, step in together:
                (desk.copy / name).parent.mkdir(parents=True, exist_ok=True)
                step(desk.copy / name)
            for _ in range(2):  # what always needs a person's look, a link say, the person takes
                await desk.compared()
                waiting = list(desk.pending().values())
                answer_all(desk.gate, [one.id for one in waiting], "approved", by="tester")
                for one in waiting:
                    await desk.settled(one)
            assert not taken_for_repositories(host, names)
        assert len(taken_for_repositories(desk.copy, names)) == len(names), (
            "in the copy each of them is one"
        )
        denied = {
            one.action.path
            for one in desk.queue.read(lambda c: store.of_session(c, SESSION, 100_000))
            if status(one) == "denied" and WHY in explanation(one)
        }  # type: ignore[union-attr]
        reached = {"/".join(path.split("/")[:1]) for path in denied}
        assert {name.split("/")[0] for name in names} <= reached
    desk.close()
    shutil.rmtree(tmp_path / "data")
