"""What is kept of a connection's verdict is written as it would be made anew, for as long as
nothing in it is known to be a secret."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import Action, Exec, Network
from supervisor.core.secrets.redact import Redactor
from supervisor.core.verdicts import Verdict
from supervisor.errors import StorageError
from supervisor.gate import audit_lines
from supervisor.gate.audit_lines import VerdictLines
from supervisor.records.audit import Audit, verify
from tests.fakes.clock import FakeClock

ALLOWED = Verdict("allow", "allowed by a rule", rule="network(api.example.org)", rule_id="r")


class Recorder:
    """A record, and what writes verdicts to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.redactor = Redactor()
        self.audit = Audit(path, FakeClock(), self.redactor)
        self.lines = VerdictLines(self.audit, self.redactor)

    def text(self) -> str:
        return self.path.read_text()


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(tmp_path / "audit.log")
    yield made
    made.audit.close()


def connect(host: str = "api.example.org", *resolved: str) -> Network:
    return Network(operation="connect", host=host, port=443, resolved=resolved)


def test_the_lines_are_the_same_byte_for_byte_whether_they_are_kept_or_not(
    recorder: Recorder, tmp_path: Path
) -> None:
    judged: list[tuple[Action, Verdict, str]] = [
        (connect(), ALLOWED, "s1"),
        (connect(), ALLOWED, "s2"),
        (connect("api.example.org", "203.0.113.9"), ALLOWED, "s1"),
        (connect(), Verdict("deny", 'no "such" rule \\ \u2028', remedy="ask"), "s1"),
        (connect("bücher.example"), ALLOWED, "s1"),
        (connect(), Verdict("deny", "half \ud800 a pair"), "s1"),
        (connect("sk-ant-abcdefghijklmnop1234"), ALLOWED, "s1"),
        (connect("a" * 5000), ALLOWED, "s1"),
        (
            Network(
                operation="request", host="a.test", port=443, scheme="https", method="GET", path="/"
            ),
            ALLOWED,
            "s1",
        ),
        (Exec(command="ls"), ALLOWED, "s1"),
    ] * 3
    plain = Audit(tmp_path / "plain.log", FakeClock(), Redactor())
    for action, verdict, session_id in judged:
        recorder.lines.write(action, verdict, session_id)
        plain.record("verdict_given", **audit_lines.judged(action, verdict, session_id))
    plain.close()
    assert recorder.path.read_bytes() == (tmp_path / "plain.log").read_bytes()
    assert verify(recorder.path).last.seq == len(judged)


def test_what_becomes_known_as_a_secret_is_in_no_later_line(recorder: Recorder) -> None:
    for _ in range(3):
        recorder.lines.write(connect("hunter2hunter2.example"), ALLOWED, "s1")
    known = recorder.text().count("hunter2hunter2")
    recorder.redactor.add("hunter2hunter2")
    for _ in range(3):
        recorder.lines.write(connect("hunter2hunter2.example"), ALLOWED, "s1")
    assert recorder.text().count("hunter2hunter2") == known
    assert recorder.text().count("[redacted]") == 3


def test_an_action_that_can_still_change_is_written_as_it_is_now(recorder: Recorder) -> None:
    addresses = ["203.0.113.9"]
    changing = Network(operation="connect", host="api.example.org", port=443, resolved=addresses)  # type: ignore[arg-type]
    recorder.lines.write(changing, ALLOWED, "s1")
    addresses[0] = "203.0.113.10"
    recorder.lines.write(changing, ALLOWED, "s1")
    assert ["203.0.113.9" in recorder.text(), "203.0.113.10" in recorder.text()] == [True, True]


def test_a_line_that_is_kept_is_written_each_time_or_the_verdict_is_not_on_record(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.lines.write(connect(), ALLOWED, "s1")
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(StorageError):
        recorder.lines.write(connect(), ALLOWED, "s1")
    monkeypatch.undo()
    recorder.lines.write(connect(), ALLOWED, "s1")
    assert verify(recorder.path).last.seq == 2


def test_what_is_kept_is_bounded(recorder: Recorder) -> None:
    for number in range(audit_lines.MOST_KEPT + 10):
        recorder.lines.write(connect(f"h{number}.example.org"), ALLOWED, "s1")
    recorder.lines.write(connect("a" * audit_lines.MOST_BYTES), ALLOWED, "s1")
    assert len(recorder.lines._kept) == 10


def test_of_nothing_there_is_nothing_to_keep(recorder: Recorder) -> None:
    assert recorder.audit.encoded({}) is None
