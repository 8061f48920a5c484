"""The readers of what a project or an index wrote take linear time (law 14)."""

import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from supervisor.core.packages.install_plan import near_popular, planned
from supervisor.core.packages.lock_files import Locked, locks_in
from supervisor.core.packages.package_commands import parse_command
from supervisor.core.packages.plan_inputs import SOURCES, inputs, installed, requirements
from supervisor.core.packages.registry_answers import facts, file_hosts
from tests.tables import each_row
from tests.worst_cases import Case, slowest

# Coverage would be measured, too.
pytestmark = pytest.mark.untraced

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


def _read(name: str, text: str) -> None:
    with contextlib.suppress(ValueError):
        READERS[name](text)


@each_row("reader", READERS)
def test_time_grows_with_the_length_alone(reader: str) -> None:
    slow = slowest(partial(_read, reader), map(Case, PIECES))
    assert slow is not None
    assert not slow.is_bad, (str(slow.case), slow)
