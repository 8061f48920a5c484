"""A workflow's event, and what its job says: outputs, a summary, annotations."""

from typing import Any

import msgspec
import pytest

from supervisor.errors import UserError
from supervisor.reviews.core import workflows
from supervisor.reviews.core.receipts import Outcome, ReceiptFacts
from supervisor.reviews.core.workflows import DoneJob, DoneJobs, DoneReview, read_event

NAME = "acme/shop"
SHA = "b" * 40


def pull(head: str | None = NAME, sender: str = "ada", **more: Any) -> dict[str, Any]:
    repo = None if head is None else {"full_name": head}
    return {
        "pull_request": {
            "number": 7,
            "head": {"repo": repo},
            "base": {"repo": {"full_name": NAME}},
        },
        "repository": {"full_name": NAME},
        "sender": {"login": sender},
        **more,
    }


@pytest.mark.parametrize(
    ("name", "payload", "webhook", "is_without"),
    [
        ("pull_request", pull(), "pull_request", False),
        ("pull_request", pull("bob/shop"), "pull_request", True),
        ("pull_request", pull(None), "pull_request", True),
        ("pull_request", pull(sender="dependabot[bot]"), "pull_request", True),
        ("pull_request_target", pull("bob/shop"), "pull_request", False),
        ("pull_request_review_comment", pull("bob/shop"), "pull_request_review_comment", True),
    ],
)
def test_events_of_pull_requests(
    name: str, payload: dict[str, Any], webhook: str, is_without: bool
) -> None:
    event = read_event(name, payload, "Acme/Shop")
    assert event is not None
    assert (event.webhook, event.number) == (webhook, 7)
    assert event.is_without_secrets == is_without


def test_a_push_names_the_head_before_it() -> None:
    assert read_event("pull_request", pull(before=SHA), NAME) == ("pull_request", 7, False, SHA)
    for before in ("x", 1, None):
        event = read_event("pull_request", pull(before=before), NAME)
        assert event is not None
        assert event.before == ""


def test_a_comment_is_about_a_pull_request_or_about_nothing() -> None:
    comment = {"repository": {"full_name": NAME}, "issue": {"number": 7}, "sender": {"login": 1}}
    assert read_event("issue_comment", comment, NAME) is None
    comment["issue"] |= {"pull_request": {"html_url": "x"}}  # type: ignore[operator]
    event = read_event("issue_comment", comment, NAME)
    assert event is not None
    assert event.number == 7


@pytest.mark.parametrize("name", ["schedule", "workflow_dispatch"])
def test_a_schedule_has_jobs_done(name: str) -> None:
    assert read_event(name, {"schedule": "17 3 * * *"}, NAME) == ("", 0, False, "")


def test_other_events_and_other_repositories_are_refused() -> None:
    with pytest.raises(UserError, match="the event `push`"):
        read_event("push", pull(), NAME)
    with pytest.raises(UserError, match="another repository"):
        read_event("pull_request", pull(), "acme/other")


def test_no_text_begins_another_command_or_output() -> None:
    line = workflows.command("warning", "T", "50%\r\n::error::x")
    assert line == "::warning title=T::50%25%0D%0A::error::x"
    assert workflows.output_lines({"a": "1\n2", "b": ""}, "END") == (
        "a<<END\n1\n2\nEND\nb<<END\n\nEND\n"
    )


def done(outcome: Outcome | None = "found", reason: str = "", **more: Any) -> DoneReview:
    facts: Any = None
    if outcome is not None:
        facts = ReceiptFacts(
            forge="github",
            repository=NAME,
            number=7,
            head=SHA,
            outcome=outcome,
            reason=reason,
            cost=25 * 10**10,
            at=1.0,
        )
    given = {
        "verdict": "comment",
        "summary": "",
        "findings": [],
        "refused": [],
        "failed": [],
        "url": "https://forge/acme/shop/pull/7",
    }
    return DoneReview(facts=facts, **given | more)


def finding(number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "identity": f"{number:08x}ffffffff",
        "severity": "high",
        "confidence": "high",
        "path": "a.py",
        "line": 3,
        "title": "It `fails` @ada",
        "body": "See <b>this</b>.",
        "skill": "bugs",
        "state": "open",
        **more,
    }


def test_outputs() -> None:
    said = workflows.outputs(done(findings=[finding()]))
    assert (said["outcome"], said["verdict"], said["cost"]) == ("found", "comment", "0.2500")
    (one,) = msgspec.json.decode(said["findings"])
    assert (one["id"], one["path"], one["line"]) == ("00000001", "a.py", 3)
    assert workflows.outputs(done(None))["outcome"] == "ignored"
    assert workflows.outputs(done(None))["cost"] == "0.00"


@pytest.mark.parametrize(("outcome", "has_failed"), [("failed", True), ("found", False)])
def test_a_job_fails_by_what_it_did_itself(outcome: Outcome, has_failed: bool) -> None:
    assert done(outcome).has_failed == has_failed
    assert done(outcome, failed=[("a", "b")]).has_failed
    earlier = done(outcome, is_earlier=True)
    assert not earlier.has_failed
    assert earlier.cost == 0
    assert not workflows.annotations(earlier)
    assert jobs("failed", "proposed").has_failed
    assert jobs("proposed", failed=[("a", "b")]).has_failed
    assert not jobs("held").has_failed


def test_findings_are_as_many_as_an_output_may_hold() -> None:
    many = [finding(one, body="x" * 2_000) for one in range(150)]
    text = workflows.findings_json(many)
    assert len(text) <= workflows.MOST_OUTPUT_CHARS
    assert 40 < len(msgspec.json.decode(text)) < 100


def test_the_summary_says_all_and_no_word_of_a_model_is_markup() -> None:
    text = workflows.summary(
        done(
            summary="One <script>.",
            findings=[finding(), finding(2, line=0, path="b.py"), *map(finding, range(3, 110))],
            refused=["post an approval on acme/shop#7"],
            failed=[("set the check", "403, no")],
        )
    )
    assert "`a.py:3`" in text
    assert "`b.py`" in text
    assert "and 9 more" in text
    assert "<script>" not in text
    assert "<b>" not in text
    assert "@ada" not in text
    assert "nobody answers here" in text
    assert "post an approval" in text
    assert "the forge refused" in text
    assert "$0.2500" in text
    assert "Nothing was to be done" in workflows.summary(done(None))
    for said in ("Fine.", ""):
        assert "**" not in workflows.summary(done("clean", summary=said))


@pytest.mark.parametrize(
    ("outcome", "level"), [("failed", "error"), ("held", "warning"), ("clean", ""), (None, "")]
)
def test_annotations(outcome: Outcome | None, level: str) -> None:
    given = done(outcome, refused=["a"], failed=[("b", "c")], reason="paused")
    lines = workflows.annotations(given)
    assert lines[0] == "::warning title=Gatehouse: not allowed::a"
    assert lines[1].startswith("::warning title=Gatehouse: refused by GitHub::b: c;")
    assert [one.split(" ")[0] for one in lines[2:]] == ([f"::{level}"] if level else [])


def jobs(*outcomes: str, **more: Any) -> DoneJobs:
    found = [
        DoneJob(f"job-{number}", one, "why" if number else "", 10**12, f"https://x/{number}")
        for number, one in enumerate(outcomes)
    ]
    return DoneJobs(**{"jobs": found, "refused": [], "failed": []} | more)


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [
        ((), "ignored"),
        (("skipped",), "skipped"),
        (("nothing", "proposed"), "proposed"),
        (("proposed", "held"), "held"),
        (("held", "refused"), "refused"),
        (("refused", "failed"), "failed"),
    ],
)
def test_the_outcome_of_jobs_is_their_worst(outcomes: tuple[str, ...], outcome: str) -> None:
    assert jobs(*outcomes).outcome == outcome


def test_what_jobs_say() -> None:
    given = jobs("proposed", "refused", "held", refused=["a"], failed=[("b", "c")])
    said = workflows.outputs(given)
    assert (said["outcome"], said["cost"], said["pull-request-url"]) == (
        *("refused", "3.00"),
        "https://x/0",
    )
    assert msgspec.json.decode(said["jobs"])[0] == {
        "name": "job-0",
        "outcome": "proposed",
        "url": "https://x/0",
    }
    text = workflows.summary(given)
    assert "**job-0** proposed. It cost $1.00. https://x/0" in text
    assert "**job-1** refused: why. It cost $1.00." in text
    assert "nobody answers here" in text
    lines = workflows.annotations(given)
    assert lines[2:] == [
        "::error title=Gatehouse: job-1 refused::why",
        "::warning title=Gatehouse: job-2 held::why",
    ]
    assert workflows.outputs(jobs())["pull-request-url"] == ""
    assert "no such job" in workflows.summary(jobs())
    one = jobs("nothing")
    assert "https" not in workflows.summary(one._replace(jobs=[one.jobs[0]._replace(url="")]))
