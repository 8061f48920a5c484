"""The check that commands can change nothing outside: what a real sandbox shows passes, and each
hole in it is named."""

import asyncio
from pathlib import Path

import pytest

from supervisor.errors import SandboxError
from supervisor.sandbox.base import Spec, ToolResult
from supervisor.sandbox.containment import Containment, problems_in

GOOD_MOUNTS = """\
107 43 0:54 /newroot / ro,nosuid - tmpfs tmpfs rw
108 107 254:0 /usr /usr ro,nosuid - ext4 /dev/vda rw
137 107 0:63 / /tmp rw,nosuid - tmpfs tmpfs rw
135 128 0:61 / /dev/pts rw,nosuid - devpts devpts rw
142 107 254:0 /data/merged /workspace/merged rw,nosuid master:1 - ext4 /dev/vda rw
"""
GOOD_INTERFACES = """\
Inter-|   Receive |  Transmit
 face |bytes    packets|bytes    packets
    lo:     776      12     776      12
"""
GOOD_STATUS = "Name:\tcat\nNoNewPrivs:\t1\nSeccomp:\t2\nCapEff:\t0000000000000000\n"
GOOD_VARIABLES = "HOME\nPATH\n"


def printed(
    mounts: str = GOOD_MOUNTS,
    interfaces: str = GOOD_INTERFACES,
    status: str = GOOD_STATUS,
    variables: str = GOOD_VARIABLES,
) -> str:
    return "--- next ---\n".join((mounts, interfaces, status, variables))


def test_a_sandbox_as_it_should_be_has_no_problem() -> None:
    assert problems_in(printed()) == ()


def test_a_part_of_its_own_memory_may_be_written_to_and_of_another_not() -> None:
    part = "144 137 {device} /home/.cargo /home/agent/.cargo rw,nosuid - tmpfs tmpfs rw\n"
    assert problems_in(printed(mounts=GOOD_MOUNTS + part.format(device="0:63"))) == ()
    other = printed(mounts=GOOD_MOUNTS + part.format(device="0:64"))
    assert problems_in(other) == ("`/home/agent/.cargo` of the host can be written to",)


def test_a_device_file_may_be_writable_where_nobody_in_the_sandbox_owns_it() -> None:
    # As an ordinary user's sandbox has it: root owns the host's device, which is bound there.
    bound = "141 140 0:6 {root} /dev/null rw,nosuid - devtmpfs devtmpfs rw,mode=755\n"
    of_root = printed(mounts=GOOD_MOUNTS + bound.format(root="/null"))
    assert problems_in(of_root, {"/dev/null"}) == ()
    assert problems_in(of_root) == ("`/dev/null` of the host can be written to",)
    other = printed(mounts=GOOD_MOUNTS + bound.format(root="/vda"))
    assert problems_in(other, {"/dev/null"}) == ("`/dev/null` of the host can be written to",)


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("", "the check printed something else"),
        (printed() + "--- next ---\n", "the check printed something else"),
        (printed(mounts=""), "`/` of the host can be written to"),
        (
            printed(mounts=GOOD_MOUNTS.replace("/usr ro,", "/usr rw,")),
            "`/usr` of the host can be written to",
        ),
        (
            printed(mounts=f"{GOOD_MOUNTS}1 2 0:9 /home /srv rw - tmpfs tmpfs rw\n"),
            "`/srv` of the host can be written to",
        ),
        (printed(interfaces=f"{GOOD_INTERFACES}  eth0: 1 2\n"), "a network interface `eth0`"),
        (printed(status=GOOD_STATUS.replace("Privs:\t1", "Privs:\t0")), "NoNewPrivs is 0"),
        (printed(status=GOOD_STATUS.replace("Seccomp:\t2\n", "")), "Seccomp is missing"),
        (printed(status=GOOD_STATUS.replace("00000\n", "00001\n")), "CapEff is 0000000000000001"),
        (printed(variables="GATEHOUSE_TOKEN\n"), "the variable GATEHOUSE_TOKEN is set"),
    ],
)
def test_each_hole_is_named(output: str, problem: str) -> None:
    (found,) = problems_in(output)
    assert problem in found


class Answers:
    """A backend that gives what it is told to."""

    def __init__(self, *results: ToolResult | Exception) -> None:
        self.results = list(results)

    async def run_tool(self, spec: Spec, **_: object) -> ToolResult:
        await asyncio.sleep(0)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (SandboxError("bubblewrap isn't installed"), "the check can't be made: bubblewrap isn't"),
        (ToolResult(exit_code=1, stdout=b"", stderr=b""), "the check failed: exit code 1"),
        (
            ToolResult(exit_code=137, stdout=b"", stderr=b"", killed_why="it took too long"),
            "the check failed: it took too long",
        ),
    ],
)
async def test_a_check_that_can_not_be_made_is_a_problem(
    result: ToolResult | Exception, problem: str, tmp_path: Path
) -> None:
    told: list[tuple[str, tuple[str, ...]]] = []
    spec = Spec(command=("true",), workspace_lower=tmp_path, workspace_merged=tmp_path)
    checks = Containment(Answers(result), lambda _: spec, lambda *one: told.append(one))  # type: ignore[arg-type]
    both = await asyncio.gather(checks.checked("one"), checks.checked("one"))
    assert both[0] == both[1] == checks.result("one")
    assert problem in both[0][0]
    assert told == [("one", both[0])]
    assert checks.result("two") is None
    checks.forget("one")
    assert checks.result("one") is None


async def test_a_check_that_breaks_is_a_problem_for_who_waits(tmp_path: Path) -> None:
    told: list[object] = []
    spec = Spec(command=("true",), workspace_lower=tmp_path, workspace_merged=tmp_path)
    checks = Containment(
        Answers(ZeroDivisionError()),  # type: ignore[arg-type]
        lambda _: spec,
        lambda *one: told.append(one),
    )
    with pytest.raises(ZeroDivisionError):
        await checks.checked("one")
    assert await checks.checked("one") == ("the check was cut short",)
    assert told == [("one", ("the check was cut short",))]
