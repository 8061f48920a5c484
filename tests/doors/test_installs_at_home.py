"""Installs outside of the project, typed in a supervised shell: each is a card, and what came is
there for the agent, its commands and the next session."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.channels.test_packages import use_cargo
from tests.doors.conftest import House
from tests.doors.test_home import GRANTED
from tests.doors.test_installs_of_programs import approved, begun, install_of
from tests.fakes import registry
from tests.fakes.registry import Registry
from tests.tables import share

pytestmark = [pytest.mark.timeout(300)]

TOOL = "#!/usr/bin/env node\nconsole.log('tool 8')\n"


@pytest.fixture(scope="module")
def index() -> Iterator[Registry]:
    with registry.serving() as serving:
        serving.add_npm("tiny-tool", "1.0.0", bin={"tiny-tool": "index.js"}, code=TOOL)
        serving.add_wheel("tiny-wheel", "1.0.0")
        serving.add_crate("tinycrate", "1.2.3")
        yield serving


@pytest.fixture
def shop(house: House, index: Registry) -> House:
    """A workspace, supervised, whose person uses the index."""
    house.up(npm_config_registry=f"{index.url}/", PIP_INDEX_URL=f"{index.url}/simple/")
    house.ok("rules", "add", "allow", f"network(127.0.0.1:{index.port})")
    return house


def test_npm_installs_a_program_that_all_of_the_session_finds(shop: House) -> None:
    script = f"{GRANTED}npm install -g tiny-tool && tiny-tool && granted tiny-tool"
    started = begun(shop, script)
    asked = approved(shop, started, "npm install -g tiny-tool")
    shown = shop.http("GET", f"/api/requests/{asked['id']}")[1]
    assert "tiny-tool" in str(shown["request"])
    printed = started.until_printed("ENDED 0")
    assert "\ntool 8\n" in printed
    assert '"stdout":"tool 8\\n"' in printed
    session = shop.sessions()[0]["id"]
    shop.stop(session)
    again = shop.start("resume", session, "--", "sh", "-c", "tiny-tool; echo A''GAIN")
    assert "tool " in again.until_printed("AGAIN").rpartition("goes on")[2]
    shop.stop(shop.sessions()[0]["id"])


@pytest.mark.parametrize(
    "words",
    share(["pip install tiny-wheel", "pip install --user tiny-wheel"], "pip install tiny-wheel"),
)
def test_pip_installs_outside_of_an_environment_where_it_works_and_says_so(
    shop: House, words: str
) -> None:
    uses = "python3 -c 'import tiny_wheel; print(tiny_wheel.__name__, tiny_wheel.VERSION)'"
    script = f'{GRANTED}{words} && {uses} && granted "{uses}"'
    started = begun(shop, script)
    approved(shop, started, words)
    printed = started.until_printed("ENDED 0")
    assert "it is installed for python3 in the session's home" in printed
    assert printed.count("tiny_wheel 1.0.0") == 2, printed


@pytest.mark.many
def test_an_environment_in_the_home_is_installed_into(shop: House) -> None:
    """The install sees the home then, and still nothing that starts by itself there."""
    plant = "echo 'echo PLANTED >&2' | tee ~/.bashrc ~/.profile; echo x > ~/.config/pip.conf"
    script = (
        f"{GRANTED}{plant}; mkdir -p ~/.local/bin; printf '#!/bin/sh\\ntouch ~/RAN' >"
        " ~/.local/bin/sh; chmod +x ~/.local/bin/sh; python3 -m venv ~/tools;"
        " ~/tools/bin/pip install tiny-wheel && rm ~/.local/bin/sh &&"
        " ~/tools/bin/python -c 'import tiny_wheel; print(tiny_wheel.VERSION)'; ls ~/RAN"
    )
    started = begun(shop, script)
    asked = install_of(shop, "pip --python /home/agent/tools install tiny-wheel")
    shown = str(shop.http("GET", f"/api/requests/{asked['id']}")[1])
    assert "which the agent can change" in shown
    shop.ok("approve", asked["id"])
    printed = started.until_printed("ENDED")
    assert "\n1.0.0\n" in printed, printed
    assert "RAN': No such file" in printed


def test_names_are_installed_whatever_folder_pip_is_started_in(shop: House) -> None:
    """Not into the project's environment, which nobody meant there."""
    uses = "python3 -c 'import tiny_wheel; print(tiny_wheel.__file__)'"
    script = f"python3 -m venv .venv && cd /tmp && pip install tiny-wheel && {uses}; pip install ."
    started = begun(shop, script)
    approved(shop, started, "pip install --user tiny-wheel")
    printed = started.until_printed("ENDED 1")
    assert "\n/home/agent/.installed/python/" in printed
    assert "the folder `/tmp` is outside the workspace" in printed


EVIL = """#!/bin/sh
mkdir -p ~/.installed/python/x ~/.packages/x && touch ~/.installed/python/x/y ~/.packages/x/y
touch /workspace/merged/ran ~/ran
"""


@pytest.mark.parametrize(
    "place", share(["/workspace/merged/.venv", "/home/agent/v"], "/home/agent/v")
)
def test_a_python_of_the_agent_s_changes_nothing_that_others_run_and_is_on_the_card(
    shop: House, place: str
) -> None:
    """A script in its place; in the copy in a folder that isn't marked as an environment."""
    is_in_copy = place.startswith("/workspace")
    plant = f"mkdir -p {place}/bin; touch {'x' if is_in_copy else f'{place}/pyvenv.cfg'};"
    plant += f" touch {place}/bin/python; chmod +x {place}/bin/python; cat > {place}/bin/python"
    script = (
        f"{plant} <<'X'\n{EVIL}X\n"
        f"VIRTUAL_ENV={place} pip install tiny-wheel; echo CODE $?;"
        " find ~/.installed ~/.packages -name y; ls ~/ran /workspace/merged/ran"
    )
    started = begun(shop, script)
    asked = shop.until_told(
        lambda: next((one for one in shop.requests() if "tiny-wheel" in one["title"]), None), "it"
    )
    shown = str(shop.http("GET", f"/api/requests/{asked['id']}")[1])
    where = place.removeprefix("/workspace/merged/")
    assert f"the Python of `{where}`, which the agent can change" in shown
    shop.run("approve", asked["id"])
    printed = started.until_printed("ENDED")
    assert "/y" not in printed.split("CODE", 1)[1], printed
    # It ran, in a sandbox without what others run.
    assert "\n/workspace/merged/ran" in printed
    assert ("other packages came than were shown: tiny-wheel 1.0.0" in printed) == is_in_copy


@pytest.fixture
def crates(house: House, index: Registry, monkeypatch: pytest.MonkeyPatch) -> House:
    """A workspace of cargo, whose sessions see the person's toolchain."""
    use_cargo(monkeypatch)
    rustup = Path(os.environ["HOME"]) / ".rustup"
    rustup.symlink_to(os.environ["RUSTUP_HOME"])
    (house.workspace / "src").mkdir()
    (house.workspace / "src/lib.rs").write_text("")
    (house.workspace / "Cargo.toml").write_text(
        '[package]\nname = "app"\nversion = "0.1.0"\n[dependencies]\ntinycrate = "1"\n'
    )
    (house.workspace / ".cargo").mkdir()
    (house.workspace / ".cargo/config.toml").write_text(
        '[source.crates-io]\nreplace-with = "near"\n'
        f'[source.near]\nregistry = "sparse+{index.url}/index/"\n'
    )
    house.up(GATEHOUSE_BIND="cargo")
    house.ok("rules", "add", "allow", f"network(127.0.0.1:{index.port})")
    return house


def test_cargo_builds_with_what_an_install_fetched(crates: House) -> None:
    started = begun(crates, "cargo check && ls ~/.packages/crates")
    asked = install_of(crates, "cargo fetch")
    crates.ok("approve", asked["id"])
    printed = started.until_printed("ENDED")
    assert "Checking tinycrate v1.2.3" in printed
    assert "ENDED 0" in printed


def test_what_can_not_be_planned_says_that_it_is_not_known(crates: House) -> None:
    started = begun(crates, "cargo install tinycrate")
    asked = install_of(crates, "cargo install tinycrate")
    shown = str(crates.http("GET", f"/api/requests/{asked['id']}")[1])
    assert "what it would install isn't known" in shown
    crates.ok("deny", asked["id"])
    started.until_printed("ENDED 1")


def test_an_agent_and_its_commands_change_nothing_of_what_was_installed(shop: House) -> None:
    script = (
        f"{GRANTED}cd; for one in .installed .packages; do touch $one/x; mv $one y; done;"
        " granted 'touch ~/.installed/x ~/.packages/x'; mkdir -p .npm-global; ls .installed"
    )
    printed = begun(shop, script).until_printed("ENDED 0")
    assert printed.count("Read-only file system") == 4, printed
    assert printed.count("Device or resource busy") == 2
