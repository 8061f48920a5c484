"""A job's prompt, and what came of it in a line."""

import msgspec

from supervisor.core.jobs import Job, JobResult, ScopeProof, job_prompt, result_words
from supervisor.core.sessions import Session, SessionId, job_words

JOB = Job(prompt="  Tidy up.\n", scope=("docs/**",))


def test_the_prompt_says_the_scope_and_that_nothing_is_to_be_committed() -> None:
    first, rules, scope = job_prompt(JOB).split("\n\n")
    assert first == "Tidy up."
    assert "Don't commit" in rules
    assert scope == "Change only files within: docs/**"
    assert "within" not in job_prompt(Job(prompt="x"))


def test_the_result_is_one_line() -> None:
    assert result_words(JOB, JobResult()) == "nothing to change"
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


def test_only_a_job_that_is_over_has_a_result() -> None:
    session = Session(
        id=SessionId("one"),
        kind="maintenance",
        workspace="/w",
        command=(),
        token_hash="",
        created_at=0.0,
        deadline_at=1.0,
    )
    assert job_words(session) == ""
    done = msgspec.structs.replace(session, job=JOB, job_result=JobResult())
    assert job_words(done) == "nothing to change"
