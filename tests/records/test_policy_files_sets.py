"""Each session is judged by its own policy file, with the rules that were saved for it, and
never by another's."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from supervisor.core.actions import FileChange, Network
from supervisor.core.approvals import status
from supervisor.core.sessions import Session
from supervisor.errors import PolicyError, UserError
from tests.fakes.gated import World, session

OWN = "version: 1\nallow: [network(own.example.org)]\n"
MAIN = "version: 1\nallow: [network(main.example.org)]\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "policy.yaml").write_text(MAIN)
    (tmp_path / "own.yaml").write_text(OWN)
    made = World(tmp_path)
    yield made
    made.close()


def own_session(
    world: World, name: str = "mine", file: str = "own.yaml", workspace: str = "/w"
) -> Session:
    facts = world.gate.rulings.policy_sets.wanted(world.folder / file)
    made = msgspec.structs.replace(session(name), workspace=workspace, **facts)
    world.gate.rulings.open_session(made)
    return made


def verdict(world: World, host: str, session_id: str) -> str:
    action = Network(operation="connect", host=host, port=443)
    return world.gate.rulings.verdict(action, session_id).decision


def test_each_session_is_judged_by_its_own_policy_alone(world: World) -> None:
    own_session(world)
    assert [verdict(world, host, "mine") for host in ("own.example.org", "main.example.org")] == [
        "allow",
        "ask",
    ]
    assert [verdict(world, host, "s1") for host in ("own.example.org", "main.example.org")] == [
        "ask",
        "allow",
    ]
    (world.folder / "own.yaml").write_text("version: 1\ndeny: [network(own.example.org)]\n")
    assert (verdict(world, "own.example.org", "mine"), verdict(world, "own.example.org", "s1")) == (
        "deny",
        "ask",
    )


def test_a_rule_that_is_saved_for_one_policy_answers_nobody_else(world: World) -> None:
    own_session(world)
    own_session(world, "same")
    policies = world.gate.rulings.policies_of("mine")
    policies.add_rule("allow", "network(new.example.org)", why="", by="operator")
    assert policies.saved_file == world.folder / "saved-own.yaml"
    assert "network(new.example.org)" in policies.saved_file.read_text()
    assert [verdict(world, "new.example.org", one) for one in ("mine", "same", "s1")] == [
        "allow",
        "allow",
        "ask",
    ]
    world.gate.rulings.policies.add_rule("allow", "network(old.example.org)", why="", by="operator")
    assert (verdict(world, "old.example.org", "mine"), verdict(world, "old.example.org", "s1")) == (
        "ask",
        "allow",
    )


async def test_a_new_rule_answers_what_waits_in_the_sessions_that_it_holds_in(world: World) -> None:
    own_session(world)
    action = Network(operation="connect", host="new.example.org", port=443)
    mine, other = world.ask(action, "mine"), world.ask(action, "s1")
    world.gate.rulings.policies_of("mine").add_rule(
        "allow", "network(new.example.org)", why="", by="operator"
    )
    await world.gate.answers.rejudge(by="the new rule")
    assert (status(world.gate.queue.get(mine.id)), status(world.gate.queue.get(other.id))) == (
        "approved",
        "pending",
    )


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda path: path.write_text("allow: 3")], ids=["gone", "broken"]
)
def test_a_policy_that_is_lost_while_it_judges_stays_as_it_was_and_is_told(
    world: World, spoil: object
) -> None:
    own_session(world)
    assert callable(spoil)
    spoil(world.folder / "own.yaml")
    assert verdict(world, "own.example.org", "mine") == "allow"
    assert verdict(world, "main.example.org", "mine") == "ask"
    banner = world.gate.rulings.policy_sets.banner or ""
    assert str(world.folder / "own.yaml") in banner
    assert "the last good policy stays in force" in banner
    assert world.gate.rulings.policies.banner is None


def test_a_policy_that_is_lost_over_a_restart_denies_everything(world: World) -> None:
    taken_up = own_session(world)
    (world.folder / "own.yaml").unlink()
    world.gate.rulings.close_session("mine")  # the set is forgotten, as by a restart
    world.gate.rulings.open_session(taken_up)
    hosts = ("own.example.org", "main.example.org", "new.example.org")
    assert {verdict(world, host, "mine") for host in hosts} == {"deny"}
    assert "everything is denied" in (world.gate.rulings.policy_sets.banner or "")
    assert verdict(world, "main.example.org", "s1") == "allow"


def test_what_can_not_judge_is_refused_before_a_session_starts(world: World) -> None:
    wanted = world.gate.rulings.policy_sets.wanted
    with pytest.raises(UserError, match="whole path"):
        wanted(Path("own.yaml"))
    with pytest.raises(PolicyError, match="No such file"):
        wanted(world.folder / "absent.yaml")
    (world.folder / "broken.yaml").write_text("version: 1\nallwo: []\n")
    with pytest.raises(PolicyError, match=r"broken\.yaml:2"):
        wanted(world.folder / "broken.yaml")
    (world.folder / "saved-own.yaml").write_text("version: 1\nallwo: []\n")
    with pytest.raises(PolicyError, match=r"saved-own\.yaml"):
        wanted(world.folder / "own.yaml")


def test_the_supervisors_own_file_under_another_name_is_the_supervisors(world: World) -> None:
    (world.folder / "link.yaml").symlink_to(world.policy)
    facts = world.gate.rulings.policy_sets.wanted(world.folder / "link.yaml")
    assert (
        world.gate.rulings.policy_sets.of(msgspec.structs.replace(session("x"), **facts))
        is world.gate.rulings.policies
    )


def test_a_session_of_another_main_policy_keeps_that_and_the_rules_saved_in_the_data_folder(
    world: World,
) -> None:
    """It was started by a `gatehouse run --policy own.yaml` that died, and another supervisor
    takes it up."""
    world.gate.rulings.policies.add_rule(
        "deny", "network(saved.example.org)", why="", by="operator"
    )
    taken_up = msgspec.structs.replace(session("left"), policy_file=str(world.folder / "own.yaml"))
    world.gate.rulings.open_session(taken_up)
    hosts = ("own.example.org", "main.example.org", "saved.example.org")
    assert [verdict(world, host, "left") for host in hosts] == ["allow", "ask", "deny"]


def test_no_rule_lets_any_session_change_the_policy_of_another(world: World) -> None:
    world.policy.write_text("version: 1\nallow: ['filesystem(**)']\n")
    world.gate.rulings.open_session(
        msgspec.structs.replace(session("older"), workspace=str(world.folder))
    )
    own_session(world)
    for name in ("own.yaml", "saved-own.yaml"):
        found = world.gate.rulings.verdict(
            FileChange(operation="write", path=name, after="x"), "older"
        )
        assert (found.decision, found.sticky) == ("ask", True), name


def test_a_set_is_forgotten_with_the_last_session_that_it_judges(world: World) -> None:
    own_session(world)
    own_session(world, "second")
    sets = world.gate.rulings.policy_sets
    world.gate.rulings.close_session("mine")
    assert len(sets.all()) == 2
    world.gate.rulings.close_session("second")
    assert sets.all() == [world.gate.rulings.policies]


def test_a_session_holds_connections_as_long_as_its_policy_or_its_own_limit_says(
    world: World,
) -> None:
    own = own_session(world)
    limited = msgspec.structs.replace(own, limits=msgspec.structs.replace(own.limits, hold_s=5.0))
    world.gate.rulings.open_session(limited)
    assert (world.gate.rulings.hold_s("mine", 60.0), world.gate.rulings.hold_s("s1", 60.0)) == (
        5.0,
        60.0,
    )
    (world.folder / "own.yaml").write_text("version: 1\nhold: 7s\n")
    assert world.gate.rulings.hold_s("mine", 60.0) == 7.0
