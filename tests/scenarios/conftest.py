"""What every scenario starts from: a supervisor with its own data folder, and a git workspace.

    async with start_supervisor("version: 1\\nallow: [filesystem(src/**)]", hold_s=2.0) as running:
        session = await running.start(workspace, "sh", "-c", "echo hello > src/new.txt")
        running.approve(await running.asked("filesystem"))
        session = await running.ended(session)

See `tests/fakes/supervised.py` for what `running` has. A second `start_supervisor` in a test finds the data folder of the first.
"""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.supervised import StartSupervisor, Supervised, make_repository, settings_in, supervised


@pytest.fixture
def start_supervisor(tmp_path: Path) -> StartSupervisor:
    """`start_supervisor(policy, names={"host.test": ("127.0.0.1",)}, **changes of the settings)`."""

    def start(
        policy: str = "version: 1\n", *, names: dict[str, tuple[str, ...]] | None = None, **changes: Any
    ) -> AbstractAsyncContextManager[Supervised]:
        return supervised(settings_in(tmp_path, policy, **changes), names=names)

    return start


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A git repository with one commit: README.md and src/app.py."""
    return make_repository(tmp_path / "project")
