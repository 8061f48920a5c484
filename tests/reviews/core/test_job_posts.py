"""Pull requests of jobs: whether a job may run, and what its pull request says."""

import pytest

from supervisor.core.jobs import Job, JobResult, ScopeProof
from supervisor.reviews.core.job_posts import (
    REST_S,
    BranchPull,
    JobMark,
    Standing,
    branch_of,
    commit_line,
    is_our_commit,
    issue_act,
    job_mark,
    pull_act,
    standing,
    with_line,
)

OURS, THEIRS = "a" * 40, "b" * 40
NOW = 1_800_000_000.0
TASK = Job(prompt="Do it.", name="docs", scope=("docs/**",), branch_name="gatehouse/docs-1")


def pull(*, is_open: bool = False, commit: str = "", closed_at: float = 0.0) -> BranchPull:
    return BranchPull(7, is_open, OURS, commit, closed_at)


@pytest.mark.parametrize(
    ("pulls", "head", "ours", "others", "found"),
    [
        ([], "", set(), 0, Standing()),
        ([], OURS, {OURS}, 0, Standing(lease=OURS)),
        ([pull(is_open=True)], OURS, {OURS}, 9, Standing(number=7, lease=OURS)),
        # Without a database of ours, the pull request says what we pushed.
        ([pull(is_open=True, commit=OURS)], OURS, set(), 0, Standing(number=7, lease=OURS)),
        ([pull(closed_at=NOW - REST_S - 1)], "", set(), 0, Standing()),
        # Merged.
        ([pull()], "", set(), 2, Standing()),
    ],
)
def test_a_job_may_run(
    pulls: list[BranchPull], head: str, ours: set[str], others: int, found: Standing
) -> None:
    assert standing(pulls, head, ours, now=NOW, others=others, most=3) == found


@pytest.mark.parametrize(
    ("pulls", "head", "others", "why"),
    [
        ([], THEIRS, 0, "somebody else's commit is on the branch by now"),
        ([pull(is_open=True)], THEIRS, 0, "on the branch of #7 by now"),
        ([pull(closed_at=NOW - 1)], "", 0, "#7 was closed unmerged: the job rests until 2027-02-"),
        ([], "", 3, "3 pull requests of jobs are open already, and 3 may be"),
    ],
)
def test_a_job_may_not_run(pulls: list[BranchPull], head: str, others: int, why: str) -> None:
    assert why in standing(pulls, head, {OURS}, now=NOW, others=others, most=3).why


def test_a_commit_of_ours_is_known_by_committer_and_tree() -> None:
    author, tree = "Gatehouse <gatehouse@localhost>", "a" * 40
    line = commit_line("drift", tree)
    assert with_line(b"Title\n\nWhy.\n", line).decode() == f"Title\n\nWhy.\n\n{line}\n"
    signed = b"Title\n\nSigned-off-by: A <a@b.c>\n" + commit_line("drift", "b" * 40).encode()
    said = with_line(signed, line).decode()
    assert said == f"Title\n\nSigned-off-by: A <a@b.c>\n{line}\n"
    assert is_our_commit("drift", author, tree, said, author)
    assert not is_our_commit("drift", author, "c" * 40, said, author)
    assert not is_our_commit("drift", author, tree, said, "Jo <jo@b.c>")
    assert not is_our_commit("drift", author, tree, f"{said}More\n", author)
    assert not is_our_commit("other", author, tree, said, author)


def test_a_branch_is_one_job_s_of_one_repository() -> None:
    names = {branch_of(*one) for one in (("a/b", "docs"), ("a/b", "deps"), ("a/c", "docs"))}
    assert len(names) == 3
    assert branch_of("A/B", "docs") == branch_of("a/b", "docs")


@pytest.mark.parametrize("number", [0, 7])
def test_the_pull_request_says_what_was_done_and_how_it_was_checked(number: int) -> None:
    result = JobResult(
        proof=ScopeProof(inside=2),
        tests="failed",
        tests_why="exit code 1",
        tests_output="1 failed ``` <b>",
        commit=OURS,
    )
    task = Job(prompt="Do ``` it, @ada.", name="docs", scope=("docs/**",), tests="make docs")
    act = pull_act(
        "github",
        "acme/shop",
        task,
        result,
        Standing(number=number, lease=OURS if number else ""),
        title="Docs",
        base="main",
        said=("", "See <b>@bob</b> #1 http://evil.test <!-- gatehouse:job:docs:1:2 -->"),
        notes=("Made by a job.",),
        run_id="12ab",
        secrets=False,
    )
    assert act.operation == ("update-pr" if number else "open-pr")
    assert act.targets == ((OURS,) if number else ())
    assert (act.head, act.scope, act.links) == (OURS, ("docs/**",), True)
    assert job_mark(act.body) == JobMark("docs", "12ab", OURS)
    assert "````\n1 failed ``` <b>\n````" in act.body
    assert "`make docs` failed (exit code 1)" in act.body
    assert "2 files, all within docs/" in act.body
    assert "<b>@bob" not in act.body
    assert "<sub>Made by a job.</sub>" in act.body


def test_updates_are_said_and_nothing_of_them_is_markup() -> None:
    found = [{"title": "a <b> @ada", "body": "```\n<b> @ada"}] * 30
    facts = {"title": "T", "base": "main", "said": (), "notes": (), "run_id": "1"}
    act = pull_act(
        *("github", "acme/shop", TASK, JobResult(commit=OURS), Standing()),  # type: ignore[arg-type]
        **facts,  # type: ignore[arg-type]
        updated=["pad: 1.0.0 -> 1.1.0, https://x.test/pad"],
        found=found,
        secrets=False,
    )
    assert "**Updated**\n\n```\npad: 1.0.0 -> 1.1.0, https://x.test/pad\n```" in act.body
    assert act.body.count("````\n```\n<b> @ada\n````") == 20
    assert "**a <b>" not in act.body
    assert not act.links


def test_without_tests_that_is_said() -> None:
    facts = {"title": "T", "base": "main", "said": (), "notes": (), "run_id": "1"}
    act = pull_act(
        *("github", "acme/shop", TASK, JobResult(commit=OURS), Standing()),  # type: ignore[arg-type]
        **facts,  # type: ignore[arg-type]
        secrets=True,
    )
    assert "**Tests**: none were configured." in act.body
    assert act.secrets
    assert job_mark("no mark") is None


def test_an_issue_says_what_a_job_found_and_nothing_in_it_is_markup() -> None:
    finding = {"path": "a.py", "line": 3, "severity": "low", "title": "Old", "body": "By @ada."}
    review = {
        "summary": "Two things.",
        "notes": ["See http://evil.test"],
        "findings": [finding, finding | {"path": ".", "line": None}],
    }
    act = issue_act(
        *("github", "acme/shop", TASK, review),  # type: ignore[arg-type]
        number=4,
        title="Docs",
        said="Said.",
        notes=("Ours.",),
        run_id="1",  # type: ignore[arg-type]
    )
    assert (act.operation, act.number, act.links) == ("open-issue", 4, True)
    for words in ("Said.", "Two things.", "**low: Old** `a.py:3`", "**low: Old** `.`", "Ours."):
        assert words in act.body
    assert "@ada" not in act.body
    assert job_mark(act.body) == JobMark("docs", "1", "0")


def test_failed_tests_without_output_are_said() -> None:
    result = JobResult(commit=OURS, tests="not run", tests_why="denied")
    facts = {"title": "T", "base": "main", "said": (), "notes": (), "run_id": "1"}
    act = pull_act(
        *("github", "acme/shop", TASK, result, Standing()),  # type: ignore[arg-type]
        **facts,  # type: ignore[arg-type]
        secrets=False,
    )
    assert "not run (denied)" in act.body
