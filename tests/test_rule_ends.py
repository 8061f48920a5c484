"""A saved rule whose time, or session, is over goes away by itself, and its end is on record."""

import json
from pathlib import Path

from supervisor.app import Parts
from supervisor.policy_files import Until
from supervisor.settings import from_environment
from tests.fakes.clock import FakeClock
from tests.fakes.gated import session


def test_the_end_of_a_rule_is_on_record(tmp_path: Path) -> None:
    clock = FakeClock()
    parts = Parts(from_environment()._replace(data_dir=tmp_path / "data"), clock=clock)
    try:
        parts.gate.rulings.open_session(session("one"))
        add = parts.policies.add_rule
        timed = add("allow", "network(a.example.org)", why="", by="tester", until=Until(at=clock.now() + 900))
        own = add("deny", "network(b.example.org)", why="", by="tester", until=Until(session_id="one"))
        always = add("allow", "network(c.example.org)", why="", by="tester")
        clock.advance(899)
        parts.drop_ended_rules()
        assert ended(parts) == []
        clock.advance(1)
        parts.drop_ended_rules()
        parts.drop_ended_rules()
        assert [(one["rule_id"], one["effect"], one["until"]) for one in ended(parts)] == [
            (timed, "allow", clock.now())
        ]
        parts.gate.rulings.close_session("one")
        parts.drop_ended_rules()
        assert [(one["rule_id"], one["for_session"]) for one in ended(parts)[1:]] == [(own, "one")]
        assert always in parts.settings.saved_rules_file.read_text()
        assert timed not in parts.settings.saved_rules_file.read_text()
    finally:
        parts.close()


def ended(parts: Parts) -> list[dict[str, object]]:
    parts.audit.flush()
    records = [json.loads(line) for line in parts.settings.audit_log.read_text().splitlines()]
    return [one for one in records if one["event"] == "rule_ended"]
