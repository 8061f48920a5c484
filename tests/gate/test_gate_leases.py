"""Leases, and what fails closed: a stop, an ended session, a record that can't be written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.actions import fingerprint
from supervisor.core.approvals import status
from supervisor.core.verdicts import SESSION_ENDED
from supervisor.errors import RefusedError, StorageError
from supervisor.gate.gate import Lease
from tests.fakes.gated import World, connect, granted, refused


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


# -- leases ---------------------------------------------------------------------------------------


def leased(world: World, host: str, session_id: str = "s1") -> str:
    """Why what belongs to something granted may not go on; empty where it may, `ask` where a
    person is to be asked."""
    found = world.gate.lease(connect(host), session_id)
    return "ask" if found is None else "" if isinstance(found, Lease) else found.why


@pytest.mark.parametrize(
    ("host", "covered", "expected"),
    [
        ("allowed.example.org", False, "rules"),
        ("allowed.example.org", True, "rules"),
        ("other.example.net", False, "ask"),
        ("other.example.net", True, "grant"),
        ("denied.example.org", True, "denied by network(denied.example.org): it tracks people"),
    ],
)
def test_a_lease_covers_what_rules_allow_and_what_was_granted_but_no_denial(
    world: World, host: str, covered: bool, expected: str
) -> None:
    found = world.gate.lease(connect(host), "s1", covers=lambda verdict: covered)
    if isinstance(found, Lease):
        assert ("rules" if found.by_rules else "grant") == expected
    else:
        assert ("ask" if found is None else found.why) == expected
    assert [one["fingerprint"] for one in world.events("verdict_given")] == [
        fingerprint(connect(host))
    ]


def test_a_lease_is_for_its_session_and_action(world: World) -> None:
    lease = world.gate.lease(connect("allowed.example.org"), "s1")
    traffic = world.gate.lease_traffic("s1")
    assert isinstance(lease, Lease)
    assert isinstance(traffic, Lease)
    lease.use("s1", connect("allowed.example.org"))
    traffic.use("s1")
    for wrong in (
        lambda: lease.use("s2", connect("allowed.example.org")),
        lambda: lease.use("s1", connect("other.example.net")),
        lambda: lease.use("s1"),
        lambda: traffic.use("s2"),
        lambda: traffic.use("s1", connect("allowed.example.org")),
    ):
        with pytest.raises(RefusedError, match="is not what was judged"):
            wrong()


def test_a_lease_on_what_runs_takes_no_use_of_its_rule(world: World) -> None:
    action = connect("allowed.example.org")
    for is_use, hits in ((False, []), (True, [1])):
        world.gate.lease(action, "s1", is_use=is_use)
        world.gate.pending_writes.write()
        assert [count for count, _ in world.queue.read_rule_hits().values()] == hits


# -- failing closed -------------------------------------------------------------------------------


def test_the_kill_switch_denies_everything_and_voids_approvals(world: World) -> None:
    approved = world.ask(connect("other.example.net"))
    world.gate.resolve(approved.id, "approved", by="operator")
    world.kill_switch.stop("look into this")
    assert "look into this" in leased(world, "allowed.example.org")
    assert "look into this" in refused(world.gate.lease_traffic("s1")).why
    assert "look into this" in refused(world.gate.claim(approved.id, "s1")).why
    world.kill_switch.resume()
    granted(world.gate.claim(approved.id, "s1"))


def test_an_unknown_or_ended_session_is_denied(world: World) -> None:
    assert leased(world, "allowed.example.org", "nobody") == SESSION_ENDED
    assert isinstance(world.gate.lease_traffic("s1"), Lease)
    world.gate.rulings.close_session("s1")
    assert status(world.ask(connect("allowed.example.org"))) == "denied"
    assert refused(world.gate.lease_traffic("s1")).why == SESSION_ENDED


async def test_without_an_audit_nothing_is_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    approved = world.ask(connect("other.example.net"))
    world.gate.resolve(approved.id, "approved", by="operator")

    def fails(*_: object, **__: object) -> int:
        raise StorageError("the audit log can't be written: No space left on device")

    monkeypatch.setattr(world.audit, "record_all", fails)
    assert "can't be written" in leased(world, "allowed.example.org")
    assert status(world.ask(connect("allowed.example.org"))) == "denied"
    assert "can't be written" in refused(world.gate.claim(approved.id, "s1")).why
    assert (
        "can't be written"
        in refused(
            await world.gate.decide(connect("allowed.example.org"), session_id="s1", hold_s=1)
        ).why
    )
    monkeypatch.undo()
    granted(world.gate.claim(approved.id, "s1"))


def test_who_said_yes_stands_with_the_effect_where_the_answer_could_not_be_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = world.ask(connect("other.example.org"))
    with monkeypatch.context() as full_disk:
        full_disk.setattr(
            world.audit,
            "_append",
            lambda *_: (_ for _ in ()).throw(StorageError("full", "free it")),
        )
        world.gate.resolve(request.id, "approved", by="operator (cli)")
        refused(world.gate.claim(request.id, "s1"))
    granted(world.gate.claim(request.id, "s1"))
    assert not world.events("request_answered")
    (started,) = world.events("effect_started")
    assert (started["verdict"], started["by"]) == ("ask", "operator (cli)")


def test_an_exception_in_the_rules_is_a_denial(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("supervisor.gate.rulings.evaluate_in", fails)
    assert "ZeroDivisionError" in leased(world, "allowed.example.org")
    monkeypatch.setattr("supervisor.gate.rulings.evaluate_reaching", fails)
    assert world.gate.decide_by_rules(connect("allowed.example.org"), "s1", reaching=True) is None


def test_a_policy_that_breaks_keeps_the_last_good_one(world: World) -> None:
    world.policy.write_text("version: 1\nallow: [network(*.com)")
    assert not leased(world, "allowed.example.org")
    assert leased(world, "denied.example.org")
    assert world.gate.rulings.policies.banner is not None
