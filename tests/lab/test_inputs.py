"""What the lab's verbs read: the policy in force, and the record in either way."""

import json
from pathlib import Path

import msgspec
import pytest

from supervisor.core.actions import Exec, fingerprint
from supervisor.errors import PolicyError, UserError
from supervisor.lab.inputs import chosen_policy, policy_in_force, read_policy, read_record, stream_record
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
    assert rules(policy_in_force(settings)) == rules(chosen_policy(None, settings)) == ["exec(ls)", "exec(rm *)"]
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
    asked = {"at": 1, "event": "request_asked", "session": "s", "request": "r", "verdict": "ask", "action": msgspec.to_builtins(action), "fingerprint": fingerprint(action)}  # fmt: skip
    answered = {"at": 2, "event": "request_answered", "request": "r", "answer": "denied", "by": "operator (cli)"}
    settings.audit_log.write_text(f"{json.dumps(asked)}\n{json.dumps(answered)}\n")
    (past,) = read_record(None, settings)
    assert past.persons_answer == "denied"
    assert tuple(stream_record(None, settings)) == tuple(stream_record(str(settings.audit_log), settings)) == (past,)
