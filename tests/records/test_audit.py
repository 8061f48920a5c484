"""The audit log: chained, append-only, never behind an effect, and healing by itself when the
disk is back."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.secrets.redact import Redactor
from supervisor.errors import StorageError
from supervisor.records.audit import Audit, Event
from supervisor.records.audit_chain import GENESIS, line_hash, newest_first
from supervisor.records.audit_check import verify
from tests.fakes.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


def opened(path: Path, *secrets: str) -> Audit:
    return Audit(path, FakeClock(), Redactor(secrets))


def test_each_line_carries_the_hash_of_the_one_before(path: Path) -> None:
    audit = opened(path)
    for number in range(3):
        audit.record("verdict_given", number=number)
    audit.close()
    lines = path.read_bytes().splitlines()
    previous = [json.loads(line)["prev"] for line in lines]
    assert previous == [GENESIS, line_hash(lines[0]), line_hash(lines[1])]
    assert verify(path).last.seq == 3


def test_several_lines_are_written_whole_or_not_at_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = opened(path)
    lines: list[tuple[Event, dict[str, Any]]] = [
        ("request_asked", {"number": number}) for number in range(3)
    ]
    audit.record_all(lines)
    monkeypatch.setattr(
        os, "write", lambda fd, data, real=os.write: real(fd, data[: len(data) // 2])
    )
    with pytest.raises(StorageError):
        audit.record_all(lines)
    monkeypatch.undo()
    audit.record_all([])
    audit.record_all(lines[:1])
    audit.close()
    assert verify(path).last.seq == 4


def test_a_restart_goes_on_with_the_chain(path: Path) -> None:
    for _ in range(3):
        audit = opened(path)
        audit.record("supervisor_started")
        audit.close()
    assert verify(path).last.seq == 3
    assert [json.loads(line)["seq"] for line in path.read_text().splitlines()] == [1, 2, 3]


@pytest.mark.parametrize("change", ["alter", "remove", "insert", "swap"])
def test_verify_names_the_first_line_that_was_tampered_with(path: Path, change: str) -> None:
    audit = opened(path)
    for number in range(5):
        audit.record("verdict_given", verdict="deny", number=number)
    audit.close()
    lines = path.read_text().splitlines()
    if change == "alter":
        lines[1] = lines[1].replace("deny", "allow")
    elif change == "remove":
        del lines[2]
    elif change == "insert":
        lines.insert(2, lines[1])
    else:
        lines[2], lines[3] = lines[3], lines[2]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(StorageError, match=r"audit\.log:3: the chain is broken"):
        verify(path)


def test_a_line_is_in_the_file_when_record_returns(path: Path) -> None:
    audit = opened(path)
    audit.record("effect_started", request="r1")
    assert b"effect_started" in path.read_bytes()  # before any flush: kill -9 can't lose it
    audit.close()


def test_a_torn_last_line_is_dropped_and_said(path: Path) -> None:
    audit = opened(path)
    audit.record("supervisor_started")
    audit.close()
    with path.open("ab") as file:
        file.write(b'{"seq":2,"at":1,"eve')
    opened(path).close()
    assert [record["event"] for record in newest_first(path, 10)] == [
        "audit_recovered",
        "supervisor_started",
    ]
    assert verify(path).last.seq == 2


def test_after_a_failed_write_the_chain_has_no_gap(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = opened(path)
    audit.record("supervisor_started")
    write = os.write
    monkeypatch.setattr("supervisor.records.audit.os.write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(StorageError):
        audit.record("verdict_given")
    monkeypatch.undo()
    audit.record("verdict_given")
    assert audit.failure is None
    audit.close()
    assert verify(path).last.seq == 2


def test_a_secret_in_other_characters_is_redacted_however_the_line_is_written(path: Path) -> None:
    audit = opened(path, "pässwörd-1")
    audit.record("verdict_given", why="pässwörd-1", action={"pässwörd-1": ["plain"]})
    audit.record("verdict_given", why="half \ud800 pässwörd-1")
    audit.close()
    text = path.read_text()
    assert text.isascii()
    assert "rd-1" not in text
    assert text.count("[redacted]") == 3


def test_secrets_are_redacted_before_they_are_written(path: Path) -> None:
    audit = opened(path, "hunter2hunter2")
    audit.record(
        "verdict_given",
        action={"command": "curl -H 'x: hunter2hunter2' sk-ant-abcdefghijklmnop1234"},
    )
    audit.close()
    assert b"hunter2hunter2" not in path.read_bytes()
    assert b"sk-ant" not in path.read_bytes()


def test_agent_text_can_not_forge_a_line(path: Path) -> None:
    audit = opened(path)
    audit.record("request_asked", reason='x"}\n{"seq":2,"event":"request_answered"}\u2028\x1b[2J')
    audit.close()
    assert len(path.read_bytes().splitlines()) == 1
    assert path.read_bytes().isascii()
    assert verify(path).last.seq == 1


def test_newest_first_reads_from_the_end_in_blocks(path: Path) -> None:
    audit = opened(path)
    for number in range(700):
        audit.record("verdict_given", number=number, padding="x" * 300)
    audit.close()
    page = newest_first(path, 3)
    assert [record["number"] for record in page] == [699, 698, 697]
    assert [record["number"] for record in newest_first(path, 2, before_seq=page[-1]["seq"])] == [
        696,
        695,
    ]
    assert len(newest_first(path, 10_000)) == 700
    assert newest_first(path.with_name("absent"), 5) == []


def test_the_file_is_ours_alone(path: Path) -> None:
    opened(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_deleted_log_is_noticed(path: Path) -> None:
    audit = opened(path)
    audit.record("supervisor_started")
    path.unlink()
    with pytest.raises(StorageError, match="it was deleted"):
        audit.record("verdict_given")


@pytest.mark.parametrize(
    "text", ["plain", "grün", "\u202egnp.exe", "half \ud800", 'a "b" \\ \x01\x7f', 1 << 80]
)
def test_a_line_is_ascii_whatever_is_in_it(path: Path, text: object) -> None:
    audit = opened(path)
    audit.record("effect_settled", path=text)
    audit.close()
    assert path.read_bytes().isascii()
    assert json.loads(path.read_text())["path"] == text
    assert verify(path).last.seq == 1
