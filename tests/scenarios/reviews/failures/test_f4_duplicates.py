"""F4, duplicates on pushes: scripted stories of five rounds, over a real forge, git and database.

Only the reader is scripted: it reports each planted bug that it sees in the code, in other words
each time, at lines that are a little off, and sometimes it overlooks one.
"""

import os
import random
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.reviews import reconcile
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.store import findings
from tests.fakes.readers import SaidReader, read_by, remark, said
from tests.fakes.reviewed import NAME, Reviewed, reviewed

pytestmark = pytest.mark.xdist_group("reviews-stories")
STORIES = 50 if os.environ.get("EVERYTHING") else 2
ROUNDS = 5
POLICY = "version: 1\nallow: [review(* */*)]\n"
TITLES = ("{} can fail here", "Nobody handles that {} fails", "A failure of {} goes unseen")
BUG = re.compile(r"bug_(\d+)\(\)")
GIT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    **{
        f"GIT_{who}_{what}": "a@b.c"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}


class ScriptedReader(SaidReader):
    """What a model would say of the code in the folder."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._review)
        self.random = random.Random(seed)
        self.saw: dict[str, set[int]] = {}

    def _review(self, folder: Path, base: str, order: str) -> dict[str, Any]:
        changed = git(folder, "diff", "--name-only", base, "HEAD").split()
        found = []
        for path in sorted(changed):
            text = (folder / path).read_text() if (folder / path).exists() else ""
            for number, line in enumerate(text.split("\n"), 1):
                bug = BUG.search(line)
                if bug is None or self.random.random() < 0.2:
                    continue
                self.saw.setdefault(path.split("_")[0], set()).add(int(bug[1]))
                title = self.random.choice(TITLES).format(bug[0])
                quote = self.random.choice([line, line.strip(), f"  {line.strip()}  "])
                found.append(
                    remark(
                        path=path,
                        line=max(1, number + self.random.randint(-2, 2)),
                        title=title,
                        body=f"See bug_{bug[1]}.",
                        quote=quote,
                    )
                )
        self.random.shuffle(found)
        return said(found)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=folder, env=GIT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class Story:
    """One pull request, and the work on it in a clone of its own."""

    def __init__(self, on: Reviewed, folder: Path, number: int, chance: random.Random) -> None:
        self.on = on
        self.random = chance
        self.name = f"story{number}"
        self.path = f"{self.name}_a.py"
        self.bugs = 0
        self.said: set[int] = set()
        self.folder = folder / self.name
        self.bare = on.forge.repositories[NAME].folder
        git(folder, "clone", "-q", str(self.bare), str(self.folder))
        git(self.folder, "checkout", "-q", "-b", self.name, "origin/main")
        self.write([f"# {self.name}", *self.planted(2), "", "end = 1"])
        self.push("First")
        self.pull: DemoPull = on.forge.open_pull(NAME, self.name, title=self.name)

    @property
    def file(self) -> Path:
        return self.folder / self.path

    def planted(self, count: int) -> list[str]:
        found = []
        for _ in range(count):
            self.bugs += 1
            found += [f"def f{self.bugs}():", f"    return bug_{self.bugs}()", ""]
        return found

    def standing(self) -> set[int]:
        return {int(one) for one in BUG.findall(self.file.read_text())}

    def write(self, lines: list[str]) -> None:
        self.file.write_text("\n".join(lines) + "\n")

    def push(self, message: str) -> None:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", message)
        git(self.folder, "push", "-q", "-f", "origin", self.name)

    async def step(self) -> None:
        """Do one thing to the branch, and wait until its head was reviewed."""
        lines = self.file.read_text().split("\n")
        what = self.random.choice(
            ["add", "fix", "rebase", "merge", "rename", "revert", "drift", "wont-fix", "force"]
        )
        if what in ("rebase", "merge"):
            path = f"other-{self.random.randint(0, 10**9)}.py"
            self.on.forge.commit(NAME, "main", {path: "x = 1\n"}, "Elsewhere")
            git(self.folder, "fetch", "-q", "origin")
            words = ("rebase", "-q") if what == "rebase" else ("merge", "-q", "--no-edit")
            git(self.folder, *words, "origin/main")
        elif what == "add":
            self.write([*lines[:-1], *self.planted(1)])
        elif what == "fix":
            self.write([line.replace("bug_", "good_", 1) for line in lines])
        elif what == "rename":
            new = f"{self.name}_{self.random.randint(0, 10**9)}.py"
            git(self.folder, "mv", self.path, new)
            self.path = new
        elif what == "revert":
            self.write([line.replace("good_", "bug_", 1) for line in lines])
        elif what == "drift":
            self.write([*(["# more"] * self.random.randint(1, 30)), *lines])
        elif what == "force":
            git(self.folder, "commit", "-q", "--amend", "--allow-empty", "-m", "Amended")
        elif what == "wont-fix":
            await self._wont_fix()
        self.push(what)
        before = self.pull.head_sha
        head = self.on.forge.pushed(NAME, self.pull.number)
        if head == before:
            return
        await self.settled()

    async def _wont_fix(self) -> None:
        with self.on.service.engine.connect() as connection:
            known = findings.history(connection, self.pull_id())
        posted = [one for one in known if one["state"] == "open" and one["posted_at"]]
        if posted:
            one = self.random.choice(posted)
            self.on.service.rounds.say(
                *(self.pull_id(), one["identity"], "wont-fix"), by="ada", why="meant"
            )
            self.said.add(int(BUG.search(one["quote"])[1]))  # type: ignore[index]

    def pull_id(self) -> int:
        with self.on.service.engine.connect() as connection:
            query = "select id from pull_requests where number = ?"
            return connection.exec_driver_sql(query, (self.pull.number,)).scalar_one()

    async def settled(self) -> None:
        """Wait until the newest head was reviewed, and what it led to is done."""

        def reviewed_() -> bool | None:
            known = self.on.receipts(self.pull.number)
            return any(one.head_sha == self.pull.head_sha for one in known) or None

        await self.on.running.until(reviewed_, f"{self.name}: {self.pull.head_sha} is reviewed")

        def done() -> bool | None:
            acts = [one for one in self.on.acts() if one.action.number == self.pull.number]  # type: ignore[union-attr]
            return all(one.settled_at is not None or one.closed_at for one in acts) or None

        await self.on.running.until(done, f"{self.name}: its acts are done")

    def check(self, reader: ScriptedReader) -> None:
        """Nothing was said twice, and nothing that was found is lost."""
        bodies = [one["body"] for one in self.pull.comments]
        for bug in range(1, self.bugs + 1):
            about = [one for one in bodies if re.search(rf"See bug\\?_{bug}\.", one)]
            assert len(about) <= 1, (self.name, bug, bodies)
        with self.on.service.engine.connect() as connection:
            known = findings.history(connection, self.pull_id())
        summary = self.pull.reviews[0]["body"] if self.pull.reviews else ""
        kept_back = {
            int(BUG.search(one["quote"])[1])  # type: ignore[index]
            for one in known
            if one["state"] == "open" and not one["posted_at"]
        }
        for bug in self.standing() & reader.saw.get(self.name, set()) - self.said - kept_back:
            text = "\n".join([summary, *bodies])
            assert re.search(rf"bug\\?_{bug}\b", text), (self.name, bug, text)
        for one in known:
            bug = int(BUG.search(one["quote"])[1])  # type: ignore[index]
            if one["state"] in ("new", "open"):
                assert bug in self.standing(), (self.name, bug, one)
            elif one["state"] == "fixed":
                assert bug not in self.standing(), (self.name, bug, one)


@pytest.fixture
async def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reviewed]:
    monkeypatch.setattr(reconcile, "MOST_RUNS_AN_HOUR", 10_000)
    policy = tmp_path / "acts.yaml"
    policy.write_text(POLICY)
    async with reviewed(tmp_path, policy_file=policy, review_debounce_s=(0.05, 0.2)) as running:
        yield running


@pytest.mark.timeout(3600 if STORIES > 10 else 240)
async def test_over_many_pushes_nothing_is_said_twice_and_nothing_is_lost(
    on: Reviewed, tmp_path: Path
) -> None:
    reader = ScriptedReader(seed=1)
    read_by(on, reader)
    for number in range(STORIES):
        story = Story(on, tmp_path, number, random.Random(number))
        await story.settled()
        for _ in range(ROUNDS - 1):
            await story.step()
            story.check(reader)
