"""A job's prompt, and what came of it in a line."""

import msgspec
import pytest

from supervisor.core.jobs import (
    MOST_NAMED,
    MOST_SHOWN_CHARS,
    OURS,
    Changed,
    Job,
    JobResult,
    ScopeProof,
    Updated,
    author_of,
    job_prompt,
    job_title,
    refusal,
    result_words,
    scope_words,
)
from supervisor.core.sessions import Session, SessionId, job_words, keeps_changes
from supervisor.errors import UserError
from tests.tables import each_row

JOB = Job(prompt="  Tidy up.\n", scope=("docs/**",))
SESSION = Session(
    id=SessionId("one"),
    kind="maintenance",
    workspace="/w",
    command=(),
    token_hash="",
    created_at=0.0,
    deadline_at=1.0,
)


def test_the_prompt_says_the_scope_and_that_nothing_is_to_be_committed() -> None:
    first, rules, scope = job_prompt(JOB).split("\n\n")
    assert first == "Tidy up."
    assert "Don't commit" in rules
    assert scope == "Change only files within: docs/**"
    assert "within" not in job_prompt(Job(prompt="x"))


def test_the_result_is_one_line() -> None:
    assert result_words(JOB, JobResult()) == "nothing to change"
    new = [Updated(name=one, before="1", after="2") for one in "abcdef"]
    result = JobResult(proof=ScopeProof(inside=1), updated=(*new[:1], Updated(name="x", after="1")))
    assert result_words(JOB, result) == "a 1 -> 2; 1 file, all within docs/**"
    result = JobResult(proof=ScopeProof(inside=1), updated=tuple(new))
    assert ", e 1 -> 2 and 1 more; 1 file" in result_words(JOB, result)
    proof = ScopeProof(inside=2)
    assert result_words(JOB, JobResult(proof=proof)) == "2 files, all within docs/**"
    failed = JobResult(proof=proof, tests="failed", tests_why="exit code 2", branch="gatehouse/x")
    assert result_words(JOB, failed) == (
        "2 files, all within docs/**; tests failed (exit code 2); committed on gatehouse/x"
    )
    assert failed.waits
    assert not JobResult(branch="gatehouse/x", closed="dropped").waits
    passed = JobResult(proof=proof, tests="passed")
    assert result_words(JOB, passed).endswith("; tests passed")
    refused = JobResult(refused="outside docs/**: src/a")
    assert result_words(JOB, refused) == "refused: outside docs/**: src/a"


def test_the_scope_in_words() -> None:
    assert scope_words(Job(prompt="x"), ScopeProof(inside=2)) == "2 files, no scope was given"
    assert scope_words(JOB, ScopeProof(inside=1)) == "1 file, all within docs/**"
    # Of a job from before such a one was refused.
    old = ScopeProof(inside=1, outside=("src/a", "src/b"))
    assert scope_words(JOB, old) == "3 files, 2 of them outside docs/**"


def test_a_refusal_names_the_paths() -> None:
    assert refusal(JOB, ScopeProof(inside=3)) == ""
    proof = ScopeProof(
        outside=tuple(f"x{number}" for number in range(MOST_NAMED + 3)),
        blocked=(".gitmodules (why)",),
        more=1200,
        too_many="30 files, and at most 2 are let through",
    )
    first, second, third, fourth = refusal(JOB, proof).split("; ")
    assert first.startswith("outside docs/**: x0, x1")
    assert first.endswith("x19 and 3 more")
    assert second == "not a job's to change: .gitmodules (why)"
    assert (third, fourth) == ("1,200 more paths", proof.too_many)
    assert refusal(Job(prompt="x"), ScopeProof(outside=("../x",))) == "outside the workspace: ../x"


def test_who_makes_the_commit() -> None:
    assert author_of(JOB) == OURS
    assert author_of(Job(prompt="x", author="Jo Doe <jo@example.org>")) == "Jo Doe <jo@example.org>"
    for said in (
        "Jo",
        "Jo <>",
        "<jo@example.org>",
        "Jo <a b>",
        "J\no <j@e>",
        "Jo <j@e>\n",
        "<<J <j@e>",
    ):
        with pytest.raises(UserError, match="isn't `Name <mail>`"):
            author_of(Job(prompt="x", author=said))


def test_a_path_is_shown_in_one_line() -> None:
    assert Changed("a\n\udcffb").shown == "a\\n\\xffb"
    assert len(Changed("x" * 9000).shown) == MOST_SHOWN_CHARS


def test_what_was_stored_before_is_read() -> None:
    job = msgspec.convert({"prompt": "x", "branch": True}, Job)
    assert (job.branch_name, job.max_files, job.author, job.signed_off) == ("", None, "", False)
    stored = {"proof": {"inside": 1, "outside": ["a"]}, "tests": "passed", "branch": "b"}
    result = msgspec.convert(stored, JobResult)
    assert (result.refused, result.commit, result.tests_output) == ("", "", "")


def test_only_a_job_that_is_over_has_a_result() -> None:
    assert job_words(SESSION) == ""
    assert not keeps_changes(SESSION)
    done = msgspec.structs.replace(SESSION, job=JOB, job_result=JobResult())
    assert job_words(done) == "nothing to change"


@each_row(
    ("branch", "result", "expected"),
    [
        (False, None, True),
        (False, JobResult(), False),
        (False, JobResult(refused="x"), True),
        (True, JobResult(), True),
    ],
)
def test_what_a_job_changes_stays_in_its_copy_until_it_is_judged(
    branch: bool, result: JobResult | None, expected: bool
) -> None:
    job = msgspec.structs.replace(JOB, branch=branch)
    assert keeps_changes(msgspec.structs.replace(SESSION, job=job, job_result=result)) is expected


def test_a_commit_is_called_by_the_first_words() -> None:
    assert job_title(JOB) == "Tidy up."
    assert job_title(Job(prompt="a\x1bb\nmore")) == "a\\u{1b}b"
    assert len(job_title(Job(prompt="x" * 100))) == 72
    assert job_title(Job(prompt=f"{'x' * 70} yes no")) == "x" * 70
    assert job_title(Job(prompt="Tidy up.", title="Docs: what holds")) == "Docs: what holds"
