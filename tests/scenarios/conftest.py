"""What every scenario starts from: a supervisor with its own data folder, and a git workspace.

    async with start_supervisor("version: 1\\nallow: [filesystem(src/**)]", hold_s=2.0) as running:
        session = await running.start(workspace, "sh", "-c", "echo hello > src/new.txt")
        running.approve(await running.asked("filesystem"))
        session = await running.ended(session)

The modules that need origins over TLS name them in `NAMES`, as egress resolves them, and have
`site`.

See `tests/fakes/supervised.py` for what `running` has. A second `start_supervisor` in a test
finds the data folder of the first.
"""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.fakes.site import Site
from tests.fakes.supervised import (
    StartSupervisor,
    Supervised,
    make_repository,
    settings_in,
    supervised,
)


@pytest.fixture
def start_supervisor(tmp_path: Path) -> StartSupervisor:
    """`start_supervisor(policy, names={"host.test": ("127.0.0.1",)}, **changes of the
    settings)`."""

    def start(
        policy: str = "version: 1\n",
        *,
        names: dict[str, tuple[str, ...]] | None = None,
        **changes: Any,
    ) -> AbstractAsyncContextManager[Supervised]:
        return supervised(settings_in(tmp_path, policy, **changes), names=names)

    return start


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A git repository with one commit: README.md and src/app.py."""
    return make_repository(tmp_path / "project")


@pytest.fixture(scope="module")
def whole_site(
    request: pytest.FixtureRequest, authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The web site of a module, at each of its `NAMES` and by its address."""
    with Site(
        tmp_path_factory.mktemp("site"), authority, (*request.module.NAMES, "127.0.0.1")
    ) as site:
        yield site


@pytest.fixture
def site(whole_site: Site) -> Site:
    """`whole_site` without what arrived before."""
    whole_site.forget()
    return whole_site
