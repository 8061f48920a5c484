"""Scheduled jobs, from due to a pull request on a forge: what is proposed, what is pushed, what
rests, and what is refused. The recorded model plays the sessions: it writes one note."""

import contextlib
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from supervisor.base.clock import RealClock
from supervisor.core.approvals import Request, status
from supervisor.core.review_markdown import unescaped
from supervisor.reviews.core.job_posts import branch_of
from supervisor.reviews.demo.forge import DemoPull
from supervisor.reviews.demo.stage import Stage
from supervisor.reviews.demo.state import Tongue, run_git
from supervisor.reviews.store import jobs, queries
from supervisor.server.operator import decisions
from tests.fakes.messages_server import MessagesServer, Step, calls, tool_use
from tests.fakes.messages_server import text as said
from tests.fakes.reviewed import (
    CLEAN,
    MODEL_HOST,
    MODEL_KEY,
    NAME,
    Reviewed,
    forge_with_people,
    reviewing_at,
)
from tests.scenarios.reviews.test_reviews_prompts import client
from tests.tables import share

pytestmark = [pytest.mark.xdist_group("reviews-jobs"), pytest.mark.timeout(300)]
DAY_S = 86_400.0
JOB = "docs-drift"
BRANCH = branch_of(NAME, JOB)
NOTE = "docs/RECORDED_MAINTENANCE.md"
CONFIG = """
version: 1
tools: {allowlist: [filesystem, git.history, repo.write]}
schedule:
  cron: "0 3 * * *"
  timezone: Europe/Berlin
  jobs:
    - id: docs-drift
      prompt: Bring docs/ up to date with the code.
      output: {mode: pr_create, pr: {title: Bring the docs up to date}}
      writeScope: {include: ["docs/**"]}
"""


class MovedClock(RealClock):
    """The machine's clock, set forth or back."""

    def __init__(self) -> None:
        self.by = 0.0

    def now(self) -> float:  # type: ignore[override]
        return RealClock.now() + self.by


class Nights:
    """A supervisor, its forge, and a clock that goes from night to night."""

    def __init__(self, on: Reviewed, clock: MovedClock, name: str = JOB) -> None:
        self.on = on
        self.name = name
        self.clock = clock
        self.forge = on.forge

    async def night(self) -> jobs.JobRun:
        """The next night's run, once it has ended."""
        before = len(self.runs())
        self.clock.by += DAY_S

        def ended() -> jobs.JobRun | None:
            runs = self.runs()
            return runs[0] if len(runs) > before and runs[0].ended_at is not None else None

        return await self.on.running.until_soon(ended, "a run that ended")

    def runs(self) -> list[jobs.JobRun]:
        """The job's runs, newest first."""
        repository = self.on.service.repository_named(NAME)
        with self.on.service.engine.connect() as connection:
            job = jobs.jobs_of(connection, repository.id).get(self.name)
            return jobs.runs_of(connection, job.id) if job else []

    def acts(self) -> list[Request]:
        """The requests for pull requests, oldest first."""
        return [one for one in self.on.acts() if one.action.operation in ("open-pr", "update-pr")]  # type: ignore[union-attr]

    async def done(self) -> dict[str, Any]:
        """Approve what waits, and return its outcome."""
        (waiting,) = [one for one in self.acts() if status(one) == "pending"]
        self.on.running.approve(waiting)
        return await self.on.running.done(waiting)

    @property
    def pulls(self) -> list[DemoPull]:
        """All pull requests of the repository."""
        return list(self.forge.repositories[NAME].pulls.values())

    def git(self, *words: str) -> str:
        """What git says in the forge's repository."""
        return run_git(self.forge.repositories[NAME].folder, *words)


@contextlib.asynccontextmanager
async def nights(
    folder: Path,
    forge: Tongue,
    config: str = CONFIG,
    stage: Stage | None = None,
    name: str = JOB,
    files: dict[str, str] | None = None,
    **changes: Any,
) -> AsyncIterator[Nights]:
    clock = MovedClock()
    with contextlib.ExitStack() as opened:
        stage = stage or opened.enter_context(forge_with_people(folder / "stage", forge))
        stage.forge.permissions["contents"] = "write"
        stage.forge.commit(NAME, "main", {".reviewerc": config} | (files or {}), "Jobs")
        more: dict[str, Any] = {"anthropic_api_key": "", "clock": clock}
        async with reviewing_at(stage, folder, **more | changes) as on:
            found = Nights(on, clock, name)

            def is_scheduled() -> bool | None:
                with on.service.engine.connect() as connection:
                    known = queries.repository(connection, stage.forge.tongue, NAME)
                    return (known and name in jobs.jobs_of(connection, known.id)) or None

            await on.running.until_soon(is_scheduled, "the job's schedule")
            yield found


async def test_a_due_job_ends_in_a_pull_request_once_a_person_lets_it_out(
    tmp_path: Path, forge: Tongue
) -> None:
    async with nights(tmp_path, forge) as on:
        run = await on.night()
        assert (run.outcome, run.reason) == ("proposed", "")
        (asked,) = on.acts()
        act = asked.action
        assert (act.operation, act.branch, act.base) == ("open-pr", BRANCH, "main")  # type: ignore[union-attr]
        assert (act.head, act.scope) == (run.head_sha, ("docs/**",))  # type: ignore[union-attr]
        assert on.git("for-each-ref", "refs/heads/gatehouse") == ""
        assert on.pulls == []
        assert (await on.done())["ok"], on.on.running.story()
        (pull,) = on.pulls
        assert (pull.head_ref, pull.head_sha, pull.author) == (
            *(BRANCH, run.head_sha),
            on.forge.app_login,
        )
        assert pull.title == "Bring the docs up to date"
        for words in ("Bring docs/ up to date with the code.", "1 file, all within docs/**"):
            assert words in unescaped(pull.body)
        assert "A recorded model played this job" in pull.body
        assert on.git("diff", "--name-only", f"main..{BRANCH}") == NOTE
        assert on.git("rev-parse", f"{BRANCH}^") == on.git("rev-parse", "main")


async def test_a_denied_one_leaves_nothing_on_the_forge(tmp_path: Path, forge: Tongue) -> None:
    async with nights(tmp_path, forge) as on:
        await on.night()
        (asked,) = on.acts()
        on.on.running.deny(asked)
        assert on.git("for-each-ref", "refs/heads/gatehouse") == ""
        assert on.pulls == []


async def test_the_next_nights_update_it_until_somebody_commits_there(
    tmp_path: Path, forge: Tongue
) -> None:
    async with nights(tmp_path, forge) as on:
        await on.night()
        assert (await on.done())["ok"]
        first = on.pulls[0].head_sha
        # Nothing came: the note is there already, in what was pushed before.
        assert (await on.night()).outcome == "nothing"
        # The base moved: the commit is replayed on it.
        on.forge.commit(NAME, "main", {"shop/new.py": "x = 1\n"}, "More")
        run = await on.night()
        assert run.outcome == "proposed", run.reason
        act = on.acts()[-1].action
        assert (act.operation, act.number, act.targets) == ("update-pr", 1, (first,))  # type: ignore[union-attr]
        assert (await on.done())["ok"], on.on.running.story()
        (pull,) = on.pulls
        assert pull.head_sha == run.head_sha != first
        assert on.git("rev-parse", f"{BRANCH}^") == on.git("rev-parse", "main")
        assert on.git("diff", "--name-only", f"main..{BRANCH}") == NOTE
        on.forge.push(NAME, 1, {"docs/mine.md": "Mine.\n"}, "By a person")
        run = await on.night()
        assert run.outcome == "skipped"
        assert "somebody else's commit is on the branch of #1" in run.reason
        assert on.git("rev-parse", BRANCH) == pull.head_sha


@pytest.mark.many
async def test_a_pull_request_into_another_branch_is_left_alone(
    tmp_path: Path, forge: Tongue
) -> None:
    """The commit is one of its base: pushed for another, it would bring all of that along."""
    async with nights(tmp_path, forge) as on:
        await on.night()
        assert (await on.done())["ok"]
        (pull,) = on.pulls
        first = pull.head_sha
        on.forge.commit(NAME, "main", {"shop/new.py": "x = 1\n"}, "More")
        assert (await on.night()).outcome == "proposed"
        on.forge.commit(NAME, "release", {"shop/release.py": "x = 1\n"}, "Release", base="main")
        pull.base_ref = "release"
        said = await on.done()
        assert "#1 goes into release by now, not main" in said["error"], said
        run = await on.night()
        assert (run.outcome, on.git("rev-parse", BRANCH)) == ("skipped", first)
        assert "#1 of its branch goes into release, not main" in run.reason


@pytest.mark.many
async def test_a_conflict_is_said_and_the_job_begins_anew(tmp_path: Path, forge: Tongue) -> None:
    async with nights(tmp_path, forge) as on:
        await on.night()
        assert (await on.done())["ok"]
        on.forge.commit(NAME, "main", {NOTE: "Something else.\n"}, "The same file")
        run = await on.night()
        assert run.outcome == "proposed", run.reason
        assert (await on.done())["ok"], on.on.running.story()
        (pull,) = on.pulls
        assert "conflicts with the base, so it was begun anew" in pull.body
        assert on.git("rev-parse", f"{BRANCH}^") == on.git("rev-parse", "main")


async def test_a_closed_one_rests_and_its_branch_is_deleted(tmp_path: Path, forge: Tongue) -> None:
    policy = tmp_path / "acts.yaml"
    policy.write_text("version: 1\nallow: [review(delete-branch */*)]\n")
    async with nights(tmp_path, forge, policy_file=policy) as on:
        await on.night()
        assert (await on.done())["ok"]
        on.forge.close(NAME, 1)
        await on.on.service.job_pulls.tidy()
        deleted = on.on.acts()[-1]
        assert deleted.action.operation == "delete-branch"  # type: ignore[union-attr]
        assert (await on.on.running.done(deleted))["ok"], on.on.running.story()
        assert on.git("for-each-ref", "refs/heads/gatehouse") == ""
        run = await on.night()
        assert run.outcome == "skipped"
        assert "#1 was closed unmerged: the job rests until" in run.reason
        on.clock.by += 30 * DAY_S
        assert (await on.night()).outcome == "proposed"


@pytest.mark.many
async def test_the_branch_of_one_that_was_opened_again_is_kept(
    tmp_path: Path, forge: Tongue
) -> None:
    policy = tmp_path / "acts.yaml"
    policy.write_text("version: 1\n")
    async with nights(tmp_path, forge, policy_file=policy) as on:
        await on.night()
        assert (await on.done())["ok"]
        on.forge.close(NAME, 1)
        await on.on.service.job_pulls.tidy()
        deletion = on.on.acts()[-1]
        on.pulls[0].is_open = True
        on.on.running.approve(deletion)
        assert "#1 is open" in (await on.on.running.done(deletion))["error"]
        assert on.git("rev-parse", BRANCH) == on.pulls[0].head_sha


@pytest.mark.many
async def test_a_merged_one_is_followed_by_another(tmp_path: Path, forge: Tongue) -> None:
    async with nights(tmp_path, forge) as on:
        await on.night()
        assert (await on.done())["ok"]
        on.forge.merge(NAME, 1)
        on.forge.commit(NAME, "main", {NOTE: None}, "Delete it")
        assert (await on.night()).outcome == "proposed"
        assert (await on.done())["ok"], on.on.running.story()
        assert [one.number for one in on.pulls] == [1, 2]


async def test_where_nothing_is_to_be_done_nothing_is_asked(tmp_path: Path, forge: Tongue) -> None:
    note = "Written by Gatehouse's recorded model, to show what comes of a job. Delete it.\n"
    async with nights(tmp_path, forge) as on:
        on.forge.commit(NAME, "main", {NOTE: note}, "It is there")
        assert (await on.night()).outcome == "nothing"
        assert on.acts() == []


@pytest.mark.many
async def test_an_allow_rule_covers_a_job_without_a_scope_only_where_it_spells_that(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    policy = tmp_path / "acts.yaml"
    policy.write_text("version: 1\nallow: [review(open-pr */*)]\n")
    config = CONFIG.replace('      writeScope: {include: ["docs/**"]}\n', "")
    async with nights(tmp_path, forge, config, policy_file=policy) as on:
        await on.night()
        (asked,) = on.acts()
        assert status(asked) == "pending"
        policy.write_text("version: 1\nallow: [review(open-pr */* --no-scope)]\n")
        assert await on.on.running.until_soon(lambda: on.pulls or None, "a pull request")


async def test_a_job_with_a_scope_is_let_out_by_a_rule(tmp_path: Path, forge: Tongue) -> None:
    policy = tmp_path / "acts.yaml"
    policy.write_text("version: 1\nallow: [review(open-pr acme/*)]\n")
    async with nights(tmp_path, forge, policy_file=policy) as on:
        run = await on.night()
        await on.on.running.until_soon(lambda: on.pulls or None, "a pull request")
        assert on.pulls[0].head_sha == run.head_sha


@pytest.mark.many
@pytest.mark.parametrize(
    ("old", "new", "outcome", "why"),
    [
        ("repo.write", "git.read", "failed", "its tools have no `repo.write`"),
        ("docs/**", ".github/workflows/**", "refused", ".github/workflows"),
    ],
)
async def test_what_a_job_may_not_do_is_said_and_pauses_it_in_the_end(
    tmp_path: Path, forge: Tongue, old: str, new: str, outcome: str, why: str
) -> None:
    async with nights(tmp_path, forge, CONFIG.replace(old, new)) as on:
        for _ in range(3):
            run = await on.night()
            assert run.outcome == outcome
            assert why in run.reason
        assert on.acts() == []
        (paused,) = on.on.running.audit("job_paused")
        assert paused["by"] == "gatehouse"
        assert "failed 3 times in a row" in paused["why"]
        async with client(on.on.running) as web:
            said = f"docs-drift of {NAME}: it failed 3 times in a row"
            assert said in unescape((await web.get("/")).text)
            job = (await web.get("/api/jobs")).json()[0]
            await web.post(f"/api/jobs/{job['id']}/resume")
            assert said not in unescape((await web.get("/")).text)


ISSUE = """
version: 1
schedule:
  cron: "0 3 * * *"
  jobs:
    - id: docs-drift
      prompt: What in docs/ differs from the code?
      output: {mode: issue, issue: {title: What the docs say wrong}}
"""


@pytest.mark.only_on("github", "Bitbucket has no issues")
async def test_a_job_whose_tools_are_none_has_not_all_of_them(
    tmp_path: Path, forge: Tongue
) -> None:
    none = ISSUE.replace("version: 1\n", "version: 1\ntools: {allowlist: [git.read]}\n")
    async with nights(tmp_path, forge, none) as on:
        run = await on.night()
        assert (run.outcome, run.session_id or "") == ("failed", "")
        assert run.reason == "its tools are none that a job may have"


FOUND = """<review>{"verdict": "comment", "summary": "One page is wrong.", "findings": [
{"severity": "low", "path": "README.md", "line": 1, "title": "A shop no more", "body": "See @ada."}
], "notes": []}</review>"""


@pytest.mark.many
@pytest.mark.only_on("github", "Bitbucket has no issues")
async def test_a_job_may_end_in_one_issue_that_is_replaced(tmp_path: Path, forge: Tongue) -> None:
    script = [said(FOUND), said(FOUND.replace("A shop no more", "Another")), said(CLEAN)]
    with MessagesServer(script, api_key=MODEL_KEY) as model:
        more: dict[str, Any] = {
            "anthropic_api_key": MODEL_KEY,
            "anthropic_base_url": f"http://{MODEL_HOST}:{model.port}",
            "names": {MODEL_HOST: ("127.0.0.1",)},
        }
        async with nights(tmp_path, forge, ISSUE, **more) as on:
            issues = on.forge.repositories[NAME].plain_issues
            for title, number in (("A shop no more", 0), ("Another", 1)):
                run = await on.night()
                assert run.outcome == "proposed", run.reason
                (asked,) = [one for one in on.on.acts() if status(one) == "pending"]
                assert asked.action.number == number  # type: ignore[union-attr]
                on.on.running.approve(asked)
                assert (await on.on.running.done(asked))["ok"], on.on.running.story()
                (issue,) = issues.values()
                assert issue.title == "What the docs say wrong"
                assert f"**low: {title}**" in issue.body
                assert "@ada" not in issue.body
        tools = {one["name"] for one in (model.requests[0].body or {})["tools"]}
        assert {"git_log", "git_diff_range", "read_file"} <= tools
        assert not {"write_file", "edit_file", "delete_file"} & tools


@pytest.mark.many
async def test_a_project_has_so_many_open_ones_at_most(tmp_path: Path, forge: Tongue) -> None:
    other = CONFIG.split("jobs:")[1].replace("docs-drift", "other").replace("docs/**", "other/**")
    async with nights(tmp_path, forge, CONFIG + other.lstrip("\n"), job_pulls=1) as on:
        await on.night()

        def runs() -> list[jobs.JobRun]:
            repository = on.on.service.repository_named(NAME)
            with on.on.service.engine.connect() as connection:
                known = jobs.jobs_of(connection, repository.id).values()
                return [one for job in known for one in jobs.runs_of(connection, job.id)]

        def skipped() -> str | None:
            return next((one.reason for one in runs() if one.outcome == "skipped"), None)

        # Both may propose while nothing is open.
        await on.on.running.until_soon(
            lambda: sum(one.ended_at is not None for one in runs()) == 2 or None, "both"
        )
        for asked in on.acts():
            if asked.action.branch == BRANCH:  # type: ignore[union-attr]
                on.on.running.approve(asked)
                await on.on.running.done(asked)
            else:
                on.on.running.deny(asked)
        await on.night()
        why = await on.on.running.until_soon(skipped, "a job that is skipped")
        assert "1 pull requests of jobs are open already, and 1 may be" in why


def written(path: str, content: str = "x = 1\n") -> Step:
    return calls(tool_use("write_file", {"path": path, "content": content}))


@contextlib.asynccontextmanager
async def played(folder: Path, *script: Step, **changes: Any) -> AsyncIterator[Nights]:
    """Nights whose sessions are played by a model over HTTP."""
    with MessagesServer(list(script), api_key=MODEL_KEY) as model:
        more: dict[str, Any] = {
            "anthropic_api_key": MODEL_KEY,
            "anthropic_base_url": f"http://{MODEL_HOST}:{model.port}",
            "names": {MODEL_HOST: ("127.0.0.1",)},
        }
        async with nights(folder, "github", **more | changes) as on:
            yield on


@pytest.mark.parametrize(
    "path",
    share(
        [
            "shop/cart.py",
            ".github/workflows/ci.yml",
            "docs/.GitHub/Workflows/ci.yml",
            "docs/.reviewerc",
            "docs/CLAUDE.md",
            "docs/.gitattributes",
        ],
        "shop/cart.py",
        "docs/.GitHub/Workflows/ci.yml",
    ),
)
async def test_one_path_that_is_not_the_job_s_refuses_all_of_it(tmp_path: Path, path: str) -> None:
    async with played(tmp_path, written("docs/fine.md"), written(path), said(CLEAN)) as on:
        run = await on.night()
        assert run.outcome == "refused", run.reason
        assert path in run.reason
        assert on.acts() == []
        assert on.git("for-each-ref", "refs/heads/gatehouse") == ""


async def test_a_secret_is_asked_about_whatever_the_rules(tmp_path: Path) -> None:
    policy = tmp_path / "acts.yaml"
    policy.write_text("version: 1\nallow: [review(* */* --no-scope --links)]\n")
    token = "ghp_" + "a1B2" * 9
    script = (written("docs/keys.md", f"The token is {token}.\n"), said(CLEAN))
    async with played(tmp_path, *script, policy_file=policy) as on:
        run = await on.night()
        assert run.outcome == "proposed", run.reason
        (asked,) = on.acts()
        assert status(asked) == "pending"
        assert "secret" in asked.why


@pytest.mark.many
async def test_its_tests_its_author_and_its_sign_off(tmp_path: Path, forge: Tongue) -> None:
    config = CONFIG + "      tests: ls docs\n"
    author = "Jo Doe <jo@example.org>"
    async with nights(tmp_path, forge, config, job_author=author, job_sign_off=True) as on:
        await on.night()
        assert (await on.done())["ok"], on.on.running.story()
        body = on.pulls[0].body
        assert "`ls docs` passed" in body
        assert "RECORDED_MAINTENANCE.md" in body
        made = on.git("log", "-1", "--format=%an <%ae>|%cn <%ce>|%B", BRANCH)
        assert made.startswith(f"{author}|{author}|")
        assert f"Signed-off-by: {author}" in made


TESTED = CONFIG + "      tests: make test\n"
INNER = (
    "git init -q docs/inner && cd docs/inner"
    " && git -c user.name=x -c user.email=x@y commit -q --allow-empty -m x"
)
BY_TESTS = {
    "a link": ("ln -s /etc/passwd docs/link", "docs/link"),
    "a repository": (INNER, "docs/inner"),
    "a program": ("echo x > docs/run && chmod +x docs/run", "docs/run"),
    "a flag": (
        "echo x >> README.md && git update-index --assume-unchanged README.md", "README.md",
    ),
    "an exclude": ("echo new.py > .git/info/exclude; echo x > new.py", "new.py"),
    "a replacement": (
        "echo x >> README.md && git add README.md"
        " && git replace -f $$(git rev-parse HEAD:README.md) $$(git rev-parse :README.md)",
        "README.md",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("recipe", "path"),
    [
        pytest.param(*one, id=name, marks=() if name in ("a link", "a flag") else pytest.mark.many)
        for name, one in BY_TESTS.items()
    ],
)
async def test_what_its_tests_do_counts_as_the_job_s(
    tmp_path: Path, forge: Tongue, recipe: str, path: str
) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        stage.forge.commit(NAME, "main", {"Makefile": f"test:\n\t{recipe}\n"}, "Tests")
        async with nights(tmp_path, forge, TESTED, stage) as on:
            run = await on.night()
            assert (run.outcome, path in run.reason) == ("refused", True), run
            assert on.acts() == []


@pytest.mark.many
async def test_a_job_runs_where_its_conditions_hold(tmp_path: Path, forge: Tongue) -> None:
    wanted = "      conditions: {paths: {include: ['shop/**']}, branch: {include: [main]}}\n"
    async with nights(tmp_path, forge, CONFIG + wanted) as on:
        assert (await on.night()).outcome == "proposed"
        run = await on.night()
        assert (run.outcome, run.reason) == (
            "skipped",
            "none of the paths of its conditions changed since its last run",
        )
        on.forge.commit(NAME, "main", {"shop/new.py": "x = 1\n"}, "More")
        assert (await on.night()).outcome != "skipped"
        elsewhere = CONFIG + wanted.replace("[main]", "[release/*]")
        on.forge.commit(NAME, "main", {".reviewerc": elsewhere, "shop/b.py": "x = 1\n"}, "Other")
        run = await on.night()
        assert (run.outcome, run.reason) == ("skipped", "its conditions name other branches")


@pytest.mark.many
async def test_what_is_stopped_in_the_middle_is_done_again_afterwards(
    tmp_path: Path, forge: Tongue
) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        stage.forge.commit(NAME, "main", {"Makefile": "test:\n\tsleep 600\n"}, "Slow tests")
        async with nights(tmp_path, forge, TESTED, stage) as on:
            on.clock.by += DAY_S
            parts = on.on.running.parts

            def is_testing() -> bool | None:
                runs = on.runs()
                asked = parts.queue.of_session(runs[0].session_id) if runs else ()
                return any(status(one) == "used" for one in asked) or None

            await on.on.running.until_soon(is_testing, "the job's tests")
            decisions.stop_all(parts, by="ada", reason="a look")
            await on.on.running.until_soon(lambda: on.runs()[0].ended_at, "the run's end")
            assert (on.runs()[0].outcome, on.acts()) == ("stopped", [])
            on.forge.commit(NAME, "main", {"Makefile": "test:\n\ttrue\n"}, "Quick tests")
            decisions.resume(parts, by="ada")
            await on.on.running.until_soon(lambda: on.acts() or None, "the act of another run")
            assert on.runs()[0].outcome == "proposed"


async def test_nights_that_were_missed_are_made_up_for_once(tmp_path: Path, forge: Tongue) -> None:
    with forge_with_people(tmp_path / "stage", forge) as stage:
        async with nights(tmp_path, forge, stage=stage) as on:
            await on.night()
        async with nights(tmp_path, forge, stage=stage) as on:
            on.clock.by += 3 * DAY_S
            await on.on.running.until_soon(
                lambda: True if len(on.runs()) == 2 and on.runs()[0].ended_at else None, "a run"
            )
            # The clock goes back, and forth again: its night comes once.
            on.clock.by -= 3600
            await on.on.service.schedule.refresh()
            on.on.service.schedule.look()
            on.clock.by += 3600
            await on.on.service.schedule.refresh()
            on.on.service.schedule.look()
            assert len(on.runs()) == 2


@pytest.mark.many
async def test_what_is_held_begins_and_posts_nothing(tmp_path: Path, forge: Tongue) -> None:
    async with nights(tmp_path, forge) as on:
        on.on.service.hold("repository", NAME, by="ada")
        on.clock.by += DAY_S
        await on.on.running.until_soon(lambda: on.runs() or None, "a run that waits")
        assert [one.claimed_attempt for one in on.runs()] == [0]
        on.on.service.release("repository", NAME, by="ada")
        await on.on.running.until_soon(lambda: on.acts() or None, "its act")
        on.on.service.hold("repository", NAME, by="ada")
        (asked,) = on.acts()
        on.on.running.approve(asked)
        assert on.git("for-each-ref", "refs/heads/gatehouse") == ""
        on.on.service.release("repository", NAME, by="ada")
        assert (await on.on.running.done(asked))["ok"]
        assert len(on.pulls) == 1


async def test_an_approval_comes_too_late_for_what_somebody_closed_or_pushed(
    tmp_path: Path,
    forge: Tongue,
) -> None:
    async with nights(tmp_path, forge) as on:
        await on.night()
        assert (await on.done())["ok"]
        on.forge.commit(NAME, "main", {"shop/new.py": "x = 1\n"}, "More")
        await on.night()
        mine = on.forge.push(NAME, 1, {"docs/mine.md": "Mine.\n"}, "By a person")
        failed = await on.done()
        assert "by now, not" in failed["error"]
        assert on.git("rev-parse", BRANCH) == mine
