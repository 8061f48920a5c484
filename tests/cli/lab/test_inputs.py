"""What the lab's verbs read: the policy in force, and the record in either way."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from supervisor.cli.lab.inputs import (
    chosen_policy,
    policy_in_force,
    read_policy,
    read_record,
    stream_record,
)
from supervisor.core.actions import Exec, fingerprint
from supervisor.errors import PolicyError, UserError
from supervisor.settings import Settings, from_environment


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "base.yaml").write_text("version: 1\nallow: [exec(ls)]\n")
    return from_environment()._replace(data_dir=tmp_path, policy_file=tmp_path / "base.yaml")


def rules(policy: object) -> list[str]:
    return [rule.text for rule in policy.rules]  # type: ignore[attr-defined]


def test_the_policy_in_force_has_the_saved_rules(settings: Settings, tmp_path: Path) -> None:
    assert rules(policy_in_force(settings)) == ["exec(ls)"]
    settings.saved_rules_file.write_text("version: 1\ndeny: [exec(rm *)]\n")
    assert (
        rules(policy_in_force(settings))
        == rules(chosen_policy(None, settings))
        == ["exec(ls)", "exec(rm *)"]
    )
    (tmp_path / "named.yaml").write_text("ask: [exec(make)]")
    assert rules(chosen_policy(str(tmp_path / "named.yaml"), settings)) == ["exec(make)"]
    settings.saved_rules_file.write_text("deny: [nonsense]")
    with pytest.raises(PolicyError, match=r"policy\.yaml:1"):
        policy_in_force(settings)


def test_a_policy_that_is_no_text(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_policy(str(tmp_path / "bad.yaml"))
    with pytest.raises(UserError, match="No such file"):
        read_policy(str(tmp_path / "none.yaml"))


def test_a_record_streamed_is_the_record_read(settings: Settings) -> None:
    action = Exec(command="make")
    asked = {"at": 1, "event": "request_asked", "session": "s", "request": "r", "verdict": "ask",
    "action": msgspec.to_builtins(action), "fingerprint": fingerprint(action)}  # fmt: skip
    answered = {
        "at": 2,
        "event": "request_answered",
        "request": "r",
        "answer": "denied",
        "by": "operator (cli)",
    }
    settings.audit_log.write_text(f"{json.dumps(asked)}\n{json.dumps(answered)}\n")
    (past,) = read_record(None, settings)
    assert past.persons_answer == "denied"
    assert (
        tuple(stream_record(None, settings))
        == tuple(stream_record(str(settings.audit_log), settings))
        == (past,)
    )


@pytest.mark.parametrize(
    "words", [["policy", "check"], ["policy", "explain", "exec", "ls"], ["policy", "lint"]]
)
def test_an_output_that_can_not_be_written_is_one_clear_line(
    gatehouse: Path, words: list[str]
) -> None:
    line = b'{"id":"1","category":"exec","command":"ls","policy":{"allow":["exec(ls)"]}}\n'
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [gatehouse, *words],
            input=line,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert (
        done.stderr.decode()
        .splitlines()[-1]
        .startswith("gatehouse: the output can't be written: No space left")
    )


def test_a_closed_standard_input_is_one_clear_line(gatehouse: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec '{gatehouse}' policy check <&-"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.decode().count("\n")) == (1, 1)


def test_what_never_ends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="longer than"):
        read_policy("/dev/zero")
    with pytest.raises(UserError, match="is a device"):
        list(stream_record("/dev/zero", from_environment()))
