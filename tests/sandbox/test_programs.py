"""What of the host is shown so that the agent's program runs: its own folder, and never a home."""

from pathlib import Path

import pytest

from supervisor.errors import UserError
from supervisor.sandbox.programs import find_program


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with programs in the usual places, and what nobody else may see."""
    made = tmp_path / "people" / "alice"
    for folder in (
        "bin",
        "lib",
        ".ssh",
        ".local/bin",
        ".local/share/keyrings",
        "tools/node/bin",
        "tools/node/lib",
    ):
        (made / folder).mkdir(parents=True)
    for program in ("bin/mine", ".local/bin/claude", "tools/node/bin/node"):
        (made / program).write_text("#!/bin/sh\n")
        (made / program).chmod(0o755)
    return made


def shown(program: Path, home: Path) -> set[Path]:
    return {source for source, _ in find_program(str(program), "", home)[1]}


def test_an_installation_is_shown_whole(home: Path) -> None:
    assert shown(home / "tools/node/bin/node", home) == {home / "tools/node"}


@pytest.mark.parametrize("program", ["bin/mine", ".local/bin/claude"])
def test_a_home_is_never_shown_whoevers_it_is(home: Path, tmp_path: Path, program: str) -> None:
    link = tmp_path / "linked"
    link.symlink_to(home)
    for other in (home, link, Path("/root"), tmp_path / "nobody"):
        assert shown(home / program, other) == {home / program}
        assert shown(link / program, other) == {link / program}


def test_a_program_of_the_system_needs_nothing(home: Path) -> None:
    assert find_program("sh", "/usr/bin:/bin", home)[1] == ()


def test_a_program_that_is_not_there_is_one_clear_line(home: Path) -> None:
    with pytest.raises(UserError, match="not on the PATH"):
        find_program("no-such-program", "/usr/bin", home)
