"""The readers of what a project or an index wrote take linear time (law 14)."""

import contextlib
import time
from collections.abc import Callable

import pytest

from supervisor.core.packages.install_plan import near_popular, planned
from supervisor.core.packages.lock_files import Locked, locks_in
from supervisor.core.packages.package_commands import parse_command
from supervisor.core.packages.plan_inputs import SOURCES, inputs, installed, requirements
from supervisor.core.packages.registry_answers import facts, file_hosts

# Tokens of the formats that are read, each repeated, nested or unterminated.
PIECES = ["a", " ", ".", "-", "@", "[", "{", '"', "'", "=", ";", "a.", "a=1\n", "\\\n", "-r a\n",
          "\n", '{"a":', "[[a]]\n", " + a==1\n", "node_modules/", '"a",']  # fmt: skip

READERS: dict[str, Callable[[str], object]] = {
    **{f"lock {one}": lambda text, one=one: locks_in(one, text) for one in (  # type: ignore[misc]
        "package-lock.json", "Cargo.lock", "uv.lock", "pip-report.json", "uv-pip.txt")},
    **{f"{manager} {name}": lambda text, manager=manager, name=name: inputs(manager, {name: text})  # type: ignore[misc]
       for manager, names in SOURCES.items() for name in names},
    "requirements": lambda text: requirements(
        parse_command("pip install -r a"), [], {"a": text}
    ),
    "metadata": lambda text: installed([text]),
    "a name": lambda text: near_popular("npm", text),
    "versions of a name": lambda text: planned(
        {(one, str(at)): Locked(one, str(at)) for at, one in enumerate(text[::4])}, {}
    ),
    "an answer": lambda text: facts("npm", text.encode(), ["1"]),
    "a page": lambda text: file_hosts(text.encode(), "https://x.test/"),
}  # fmt: skip


def seconds(read: Callable[[str], object], text: str) -> float:
    def once() -> float:
        begun = time.process_time()
        with contextlib.suppress(ValueError):
            read(text)
        return time.process_time() - begun

    return min(once() for _ in range(3))


@pytest.mark.parametrize("reader", READERS)
def test_time_grows_with_the_length_alone(reader: str) -> None:
    for piece in PIECES:
        short, long = (
            seconds(READERS[reader], piece * (size // len(piece))) for size in (16_384, 65_536)
        )
        # Below some milliseconds the clock's grain is most of it.
        assert long < max(8 * short, 0.005), (piece, short, long)
