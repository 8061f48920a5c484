"""What is Gatehouse's own: no rule of a policy, however wide, lets an agent change the policy
that it is judged by."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from supervisor.core.actions import FileChange
from supervisor.core.approvals import status
from supervisor.core.verdicts import OWN_FILE
from tests.fakes.gated import World, session


def write(path: str, **more: Any) -> FileChange:
    return FileChange(**{"operation": "write", "path": path, "after": "1", "mode": 0o644, **more})


@pytest.fixture
def own(tmp_path: Path) -> Iterator[World]:
    """A gate whose policy file lies in the workspace, behind a linked folder, with a rule that
    allows every file."""
    workspace = tmp_path / "workspace"
    (workspace / "real").mkdir(parents=True)
    (workspace / "linked").symlink_to("real")
    (workspace / "real" / "rules.yaml").write_text("version: 1\nallow: [filesystem(**)]\n")
    made = World(tmp_path, policy=workspace / "linked" / "rules.yaml")
    made.gate.rulings.open_session(msgspec.structs.replace(session("s1"), workspace=str(workspace)))
    yield made
    made.close()


@pytest.mark.parametrize(
    "action",
    [
        write("real/rules.yaml"),
        write("linked/rules.yaml"),
        write("REAL/Rules.yaml"),
        write("./real//rules.yaml"),
        write("real/rules.yaml", operation="delete", after=None),
        write("real", operation="chmod", after="dir"),
        write("linked", operation="delete", after=None),
        write("elsewhere", operation="rename", to="real/rules.yaml"),
    ],
)
def test_no_rule_lets_an_agent_change_the_policy_that_it_is_judged_by(
    own: World, action: FileChange
) -> None:
    request = own.ask(action)
    assert status(request) == "pending"
    assert request.sticky
    assert request.why == OWN_FILE


def test_files_beside_the_policy_are_judged_by_the_rules(own: World) -> None:
    assert status(own.ask(write("real/other.yaml"))) == "allowed"
    assert status(own.ask(write("real/../../x"))) == "denied"
