"""Signed heads of the audit log: what was changed or is missing is found, and what a crash
leaves is not taken for that."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.cli import cli
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import StorageError
from supervisor.records import audit_heads
from supervisor.records.audit import Audit
from supervisor.records.audit_chain import GENESIS, Point, line_hash, newest_first
from supervisor.records.audit_check import Outside, verify
from supervisor.records.audit_heads import Heads, Mark, SigningKey, mark_path, read_mark
from supervisor.settings import ROOT
from supervisor.store import audit_head
from supervisor.store.audit_head import AuditHead
from supervisor.store.engine import open_database
from tests.fakes.clock import FakeClock


class Log:
    """A log with its heads, as the supervisor writes it. `started` begins again in the same
    folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.log"
        self.database = folder / "gatehouse.db"
        self.clock = FakeClock()

    @contextlib.contextmanager
    def started(self) -> Iterator[Audit]:
        engine = open_database(self.database)
        try:
            audit = Audit(self.path, self.clock, Redactor(), Heads(self.path, engine))
            with contextlib.closing(audit):
                yield audit
        finally:
            engine.dispose()

    def write(self, count: int) -> None:
        with self.started() as audit:
            for number in range(count):
                audit.record("verdict_given", verdict="deny", number=number)
                self.clock.advance(0.6)

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def put(self, lines: list[str]) -> None:
        self.path.write_text("".join(f"{line}\n" for line in lines))

    def outside(self) -> Outside:
        return Outside.read(self.path, self.database)

    def why(self) -> str:
        """What `gatehouse audit --verify` finds wrong."""
        with pytest.raises(StorageError) as found:
            verify(self.path, self.outside())
        return found.value.message


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def chained(lines: list[str]) -> list[str]:
    """The lines as a forger leaves them: numbered and chained anew."""
    found, previous = [], GENESIS
    for number, line in enumerate(lines, 1):
        record = json.loads(line) | {"seq": number, "prev": previous}
        found.append(json.dumps(record, separators=(",", ":")))
        previous = line_hash(found[-1].encode())
    return found


def unsigned(lines: list[str]) -> list[str]:
    return [
        json.dumps({key: value for key, value in json.loads(line).items() if key != "signed"})
        for line in lines
    ]


def test_a_log_is_signed_from_its_first_record_and_verifies(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(6)
    checked = verify(log.path, log.outside())
    assert (checked.last.seq, checked.signed_from) == (6, 1)
    assert (
        sum("signed" in json.loads(line) for line in log.lines) == 3
    )  # one a second, not one a record
    head = line_hash(log.lines[-1].encode())
    assert log.outside().head == AuditHead(6, head, log.outside().head.signature)  # type: ignore[union-attr]
    assert cli.main(["audit", "--verify", "--data-dir", str(log.path.parent)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("6 records, unbroken\nsigned from record 1 on, with the key ")
    assert said.endswith(f"head 6 {head}\n")


def test_a_changed_record_is_found_though_the_chain_was_made_anew(log: Log) -> None:
    log.write(6)
    log.put(
        chained(
            [
                line.replace("deny", "allow") if number == 2 else line
                for number, line in enumerate(log.lines)
            ]
        )
    )
    assert verify(log.path).last.seq == 6  # the chain alone shows nothing
    assert "audit.log:5: the signature of what is before this line is wrong" in log.why()


def test_a_changed_record_is_found_without_its_signatures(log: Log) -> None:
    log.write(6)
    log.put(chained(unsigned([line.replace("deny", "allow") for line in log.lines])))
    assert "record 6, or one before it, is not the one that was written" in log.why()


@pytest.mark.parametrize("outside", [["audit_head"], ["audit.end"], ["audit_head", "audit.end"]])
def test_a_forger_who_takes_away_what_is_kept_outside_is_found(
    log: Log, outside: list[str]
) -> None:
    log.write(6)
    log.put(log.lines[:4])
    if "audit.end" in outside:
        mark_path(log.path).unlink()
    if "audit_head" in outside:
        engine = open_database(log.database)
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM audit_head")
        engine.dispose()
    assert "the database knows no head of it" in log.why() or "its end is missing" in log.why()


@pytest.mark.parametrize("left", [5, 1, 0])
def test_a_missing_end_is_found(log: Log, left: int) -> None:
    log.write(6)
    log.put(log.lines[:left])
    assert log.why().endswith(
        f"its end is missing: it had 6 records, and has {left}"
        if left
        else "it is gone or empty, and had 6 records"
    )


def test_a_deleted_log_is_found(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.write(6)
    log.path.unlink()
    assert "it is gone or empty, and had 6 records" in log.why()
    assert cli.main(["audit", "--verify", "--data-dir", str(log.path.parent)]) != 0
    assert "keep this log" in capsys.readouterr().err


def test_what_was_written_after_the_newest_head_is_missed_too(log: Log) -> None:
    """As after a kill -9 within the second before the next head."""
    log.write(3)
    head = log.outside().head
    log.write(3)
    engine = open_database(log.database)
    assert head is not None
    with engine.begin() as connection:
        audit_head.write(connection, head)
    engine.dispose()
    assert verify(log.path, log.outside()).last.seq == 6
    log.put(log.lines[:5])
    assert log.why().endswith("its end is missing: it had 6 records, and has 5")


def test_a_mark_that_somebody_else_wrote_is_none(log: Log) -> None:
    log.write(3)
    forged = SigningKey.make(log.path.with_name("other.key"))
    text = f"{2:020d} {line_hash(log.lines[1].encode())} {audit_heads.boot_id()}"
    mark_path(log.path).write_text(f"{text} {forged.mac(text)}\n")
    assert log.why().endswith("audit.end, which says how long it is, was changed")
    mark_path(log.path).write_text("nothing of ours")
    assert log.why().endswith("audit.end, which says how long it is, was changed")


def test_a_head_that_somebody_else_signed_is_none(log: Log) -> None:
    log.write(3)
    point = Point(2, line_hash(log.lines[1].encode()))
    engine = open_database(log.database)
    with engine.begin() as connection:
        forged = SigningKey.make(log.path.with_name("other.key")).sign(point)
        audit_head.write(connection, AuditHead(*point, forged))
    engine.dispose()
    assert log.why().endswith("its head in the database is not signed with audit.key")


def test_what_the_machine_lost_when_its_power_was_cut_is_no_forgery(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(3)
    head = log.outside().head
    log.write(3)
    engine = open_database(log.database)
    assert head is not None
    with engine.begin() as connection:
        audit_head.write(connection, head)
    engine.dispose()
    log.put(log.lines[:4])
    monkeypatch.setattr(audit_heads, "boot_id", lambda: "another boot")
    assert verify(log.path, log.outside()).last.seq == 4
    log.put(log.lines[:2])  # but what had a head was on the disk
    assert log.why().endswith("its end is missing: it had 3 records, and has 2")


def test_a_start_says_that_the_log_was_cut_and_the_record_never_forgets(log: Log) -> None:
    log.write(6)
    log.put(log.lines[:4])
    with log.started() as audit:
        assert "its end is missing: it had 6 records, and has 4" in (audit.broken or "")
        assert [one["event"] for one in newest_first(log.path, 1)] == ["audit_broken"]
        audit.record("supervisor_started")
    assert "audit.log:5: this record says that the log was changed" in log.why()
    with log.started() as audit:
        assert audit.broken is None  # the start looks at the end only ...
        assert "this record says that the log was changed" in (
            audit.examine() or ""
        )  # ... and then at all of it


def test_a_log_that_was_moved_away_begins_anew_and_says_so(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write(6)
    log.path.rename(log.path.with_name("kept.log"))
    with log.started() as audit:
        assert "it is gone or empty, and had 6 records" in (audit.broken or "")
        assert "it is gone or empty" in (audit.examine() or "")
    assert cli.main(["audit", "--verify", "--data-dir", str(log.path.parent)]) == 0
    assert "another log was here before" in capsys.readouterr().out
    with log.started() as audit:
        assert audit.examine() is None


def test_a_log_of_before_there_were_signatures_is_signed_from_now_on(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Audit(log.path, log.clock, Redactor())
    for number in range(3):
        old.record("verdict_given", number=number)
    old.close()
    assert cli.main(["audit", "--verify", "--data-dir", str(log.path.parent)]) == 0
    assert "3 records, unbroken\nnone of them is signed\n" in capsys.readouterr().out
    with log.started() as audit:
        assert audit.broken is None
        assert audit.examine() is None
        audit.record("supervisor_started")
    assert verify(log.path, log.outside()).signed_from == 4
    # The first signature stands for all before it.
    log.put(chained([line.replace('"number":1', '"number":7') for line in log.lines]))
    assert "audit.log:4: the signature of what is before this line is wrong" in log.why()


def test_a_signed_log_without_its_key_is_not_gone_on_with(log: Log) -> None:
    log.write(3)
    key = log.path.with_name("audit.key")
    assert key.stat().st_mode & 0o777 == 0o600
    kept = key.read_bytes()
    key.unlink()
    assert "audit.key: it is gone" in log.why()
    with pytest.raises(StorageError, match=r"audit\.key: it is gone"), log.started():
        pass
    key.write_bytes(kept)
    key.chmod(0o640)
    with pytest.raises(StorageError, match="others can read or change it"), log.started():
        pass
    key.chmod(0o600)
    with log.started() as audit:
        assert audit.broken is None


def test_a_database_that_was_lost_is_told(log: Log) -> None:
    log.write(3)
    log.database.unlink()
    for rest in log.path.parent.glob("gatehouse.db-*"):
        rest.unlink()
    assert log.why().endswith("its records are signed, and the database knows no head of it")
    with log.started() as audit:
        assert "the database knows no head" in (audit.broken or "")


# -- crashes --------------------------------------------------------------------------------------

CRASH = """
import os, signal, sys
from pathlib import Path
from supervisor.records import audit, audit_heads
from supervisor.records.audit import Audit
from supervisor.base.clock import RealClock
from supervisor.core.secrets.redact import Redactor
from supervisor.store.engine import open_database

folder, at = Path(sys.argv[1]), sys.argv[2]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def begun():
    return Audit(folder / "audit.log", RealClock(), Redactor(), audit_heads.Heads(folder / "audit.log", engine))

engine = open_database(folder / "gatehouse.db")
if at == "key":
    audit_heads.Heads.mark = die
elif at == "first mark":
    audit_heads.Heads.keep = die
log = begun()
for number in range(5):
    log.record("verdict_given", number=number)
if at == "append":
    audit_heads.Heads.mark = die
elif at == "half":
    real = os.write
    os.write = lambda fd, data: (real(fd, data[:20]), die())
elif at == "head":
    audit_heads.Heads.keep = die
elif at == "head row":
    real_write = audit_heads.audit_head.write
    audit_heads.audit_head.write = lambda *given: (real_write(*given), die())
log.record("verdict_given", number=5)
log.close()
"""  # noqa: E501


@pytest.mark.parametrize("at", ["key", "first mark", "append", "half", "head", "head row"])
def test_kill_9_between_any_two_writes_is_no_forgery(log: Log, at: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(log.path.parent), at], cwd=ROOT, check=False
    )
    assert done.returncode == -signal.SIGKILL
    acknowledged = 0 if at in ("key", "first mark") else 5
    assert verify(log.path, log.outside()).last.seq in (acknowledged, 6)
    with log.started() as audit:
        assert audit.broken is None
        assert audit.examine() is None
        audit.record("supervisor_started")
    assert verify(log.path, log.outside()).last.seq > acknowledged


def test_a_running_log_verifies_at_any_moment(log: Log) -> None:
    with log.started() as audit:
        for number in range(200):
            audit.record("verdict_given", number=number)
            log.clock.advance(0.3)
            if number % 20 == 0:
                assert verify(log.path, log.outside()).last.seq == number + 1


def test_a_head_waits_for_the_disk_and_not_for_the_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the two: what is signed in the database is on the disk already."""
    done: list[str] = []
    for name, of in (("fdatasync", os), ("keep", Heads)):
        real: Callable[..., object] = getattr(of, name)

        def noted(*given: object, _real: Callable[..., object] = real, _name: str = name) -> object:
            done.append(_name)
            return _real(*given)

        monkeypatch.setattr(of, name, noted)
    log.write(2)
    assert done[0] == "fdatasync"
    assert done[-2:] == ["fdatasync", "keep"]
    mark = read_mark(mark_path(log.path))
    assert isinstance(mark, Mark)
    assert mark.point.seq == 2
