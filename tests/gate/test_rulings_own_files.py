"""The files that Gatehouse is told by may lie in a workspace: whatever rules allow there, no
session changes them unasked."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from supervisor.base.process import run
from supervisor.core.actions import FileChange, FileOperation
from supervisor.core.verdicts import OWN_FILE
from supervisor.network.network import EGRESS
from supervisor.parts import Parts
from supervisor.settings import ROOT, from_environment
from tests.fakes.gated import session
from tests.fakes.waiting import PATIENCE_S

POLICY = "version: 1\nallow:\n  - filesystem(**)\n"
NAMED = ("policy.yaml", "team/credentials.yaml", "team/prices.yaml", "team/ca.pem")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, upstream_ca: Path) -> Iterator[Parts]:
    folder = tmp_path_factory.mktemp("own")
    workspace = folder / "workspace"
    (workspace / "team").mkdir(parents=True)
    policy, credentials, prices, authority = (workspace / name for name in NAMED)
    policy.write_text(POLICY)
    prices.write_bytes((ROOT / "policy/prices.yaml").read_bytes())
    authority.write_bytes(upstream_ca.read_bytes())
    settings = from_environment()._replace(
        data_dir=folder / "data",
        policy_file=policy,
        credentials_file=credentials,  # which isn't there yet
        prices_file=prices,
        upstream_ca=authority,
    )
    made = Parts(settings)
    made.gate.rulings.open_session(
        msgspec.structs.replace(session("one"), workspace=str(workspace))
    )
    yield made
    made.close()


@pytest.mark.parametrize("name", [*NAMED, "team", "TEAM/Credentials.yaml"])
@pytest.mark.parametrize("operation", ["write", "delete"])
def test_a_change_of_one_is_asked(parts: Parts, name: str, operation: FileOperation) -> None:
    """A credential that is bound to another host would go there at the next start, and its
    command be run."""
    verdict = parts.gate.rulings.verdict(
        FileChange(operation=operation, path=name, after="x"), "one"
    )
    assert (verdict.decision, verdict.why, verdict.sticky) == ("ask", OWN_FILE, True)
    moved = FileChange(operation="rename", path="a.txt", to=name, after="x")
    assert parts.gate.rulings.verdict(moved, "one").decision == "ask"


async def test_what_lies_beside_gatehouse_is_no_module_of_egress(tmp_path: Path) -> None:
    """Gatehouse may supervise work on itself, where an agent may be allowed to add files."""
    for name in ("argparse", "resource", "uvloop"):
        (tmp_path / f"{name}.py").write_text("print('mine'); raise SystemExit(3)")
    done = await run([*EGRESS, "--help"], env={}, cwd=tmp_path, timeout_s=PATIENCE_S)
    assert (done.exit_code, b"mine" in done.stdout, b"--channel-fd" in done.stdout) == (
        0,
        False,
        True,
    ), done


@pytest.mark.parametrize(
    "name", ["a.txt", "teams/credentials.yaml", "team/credentials.yaml.md", "team/other"]
)
def test_others_are_as_rules_say(parts: Parts, name: str) -> None:
    assert (
        parts.gate.rulings.verdict(
            FileChange(operation="write", path=name, after="x"), "one"
        ).decision
        == "allow"
    )
