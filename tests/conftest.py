"""What every test may use: places, a browser, who signs for origins, and how long the property
tests search.

Kept generic on purpose. What only one part needs lives in that part's own conftest; stateful
fakes of the outside (a clock, a model server, a package index) live in `tests/fakes`.
"""

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# To rewrite the assertions of all tests takes as long as all else of collecting them: what one
# process rewrote, the others read, also where PYTHONDONTWRITEBYTECODE is set.
sys.dont_write_bytecode = False

# What tests start is started as from a terminal, also under nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# What is collected is kept to the end: to look through it again and again for garbage takes a tenth
# of all the time.
gc.disable()

# `make test` searches shortly and the same way each time; `make fuzz` long, and anew each time.
settings.register_profile("fast", max_examples=100, deadline=None, derandomize=True)
settings.register_profile(
    "deep", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fast")

# What could make a test depend on the person who runs it, or reach their account.
_PERSONAL = ("ANTHROPIC_", "GATEHOUSE_", "CLAUDE_", "GIT_", "MAX_UPTIME")
_KEPT = ("GIT_SSL_CAINFO",)


def pytest_collection_finish() -> None:
    """From here on garbage is made."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What shares something of its file runs in one process. What `make test` takes no share of:
    `make test-many` runs it, and whoever names it."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _shares(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    if os.environ.get("EVERYTHING") or any("::" in one for one in config.args):
        return
    skip = pytest.mark.skip(reason="one of many of its kind: make test-many")
    for item in items:
        if item.get_closest_marker("many"):
            item.add_marker(skip)


def _shares(item: pytest.Item) -> bool:
    """Return whether the item has a fixture, or a loop, that is made once for its file."""
    loop = item.get_closest_marker("asyncio")
    if loop is not None and loop.kwargs.get("loop_scope") == "module":
        return True
    known = getattr(item, "_fixtureinfo", None)
    made = known.name2fixturedefs.values() if known is not None else ()
    return any(definitions[-1].scope in ("module", "package") for definitions in made)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def gatehouse() -> Path:
    """The program as users start it."""
    program = ROOT / ".venv" / "bin" / "gatehouse"
    assert program.exists(), "run `make setup-dev` first"
    return program


@pytest.fixture(scope="session", autouse=True)
def _nobodys_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home of its own, no settings, no keys, no git identity but the tests': nothing of the
    person's is read or written."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Test\n\temail = test@example.org\n[init]\n\tdefaultBranch ="
        " main\n[commit]\n\tgpgsign = false\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_PERSONAL) and name not in _KEPT:
                patch.delenv(name)
        # Playwright looks for its own browser below the home.
        if "PLAYWRIGHT_BROWSERS_PATH" not in os.environ:
            patch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(Path.home() / ".cache" / "ms-playwright"))
        patch.setenv("HOME", str(home))
        for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            patch.delenv(name, raising=False)
        yield
    # Overlays, and tests of permissions, leave folders that their owner may not enter: pytest's
    # later runs couldn't remove them.
    shut = ["find", str(tmp_path_factory.getbasetemp()), "-type", "d", "!", "-perm", "-700"]
    subprocess.run(
        [*shut, "-exec", "chmod", "u+rwx", "{}", ";"], stderr=subprocess.DEVNULL, check=False
    )


@pytest.fixture(scope="session")
def browser_path() -> Path | None:
    """The machine's Chromium or Chrome, one that can't show a window if there is one (it takes half
    of the processor's time); None means Playwright's own, which `make setup-dev` got
    where there is none."""
    for name in ("chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return Path(found)
    return None


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who signs for the origins of a module."""
    return trustme.CA()


@pytest.fixture(scope="module")
def upstream_ca(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of `authority`, for egress to trust."""
    path = tmp_path_factory.mktemp("upstream") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """Where a test starts what it then waits for; its end is awaited after the test."""
    async with asyncio.TaskGroup() as group:
        yield group
