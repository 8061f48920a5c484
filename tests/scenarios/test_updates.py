"""`gatehouse maintain --updates` as a person types it: the real package managers update a project
at an index on loopback, and what comes of it is one commit to take."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.settings import ROOT
from tests.channels.test_packages import use_cargo
from tests.fakes import registry
from tests.fakes.registry import Registry
from tests.fakes.supervised import git
from tests.scenarios.process import Gatehouse

pytestmark = pytest.mark.timeout(300)

# pip plans for seconds what npm plans at once.
LONG_S = 280.0
OLD_PAD = "exports.padStart = (text, width) => ' '.repeat(width - text.length) + text\n"
NEW_PAD = OLD_PAD.replace("padStart", "padLeft")
OLD_PY = "def pad_start(text, width):\n    return text.rjust(width)\n"
NEW_PY = OLD_PY.replace("pad_start", "pad_left")
LOUD = "module.exports = text => text.toUpperCase()\n"
PAGE = "https://example.org/tidy/pad"
HERE = "host.gatehouse.internal"
REPOSITORY = {"type": "git", "url": f"git+{PAGE}.git"}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The index of the person's own configuration."""
    with registry.serving() as served:
        served.add_npm("tidy-pad", "1.0.0", code=OLD_PAD)
        served.add_npm("loud", "1.0.0", code=LOUD)
        served.add_npm("sly", "1.0.0")
        npmrc = Path(os.environ["HOME"]) / ".npmrc"
        npmrc.write_text(f"registry={served.url}/\n")
        yield served
        npmrc.unlink()


@pytest.fixture
def python_project(tmp_path: Path, index: Registry) -> Iterator[Path]:
    """One with pinned requirements, and tests in an environment that git ignores."""
    for name, code in (("pad-it", OLD_PY), ("quiet", ""), ("sly-one", "")):
        index.add_wheel(name, "1.0.0", code=code)
    conf = Path(os.environ["HOME"]) / ".config/pip/pip.conf"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(f"[global]\nindex-url = {index.url}/simple/\n")
    made = tmp_path / "project"
    made.mkdir()
    git(made, "init", "-q")
    (made / ".gitignore").write_text(".venv/\n__pycache__/\n")
    (made / "requirements.txt").write_text("pad-it == 1.0.0  # for prices\nsly-one==1.0.0\n")
    (made / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "1"\ndependencies = ["quiet==1.0.0"]\n'
    )
    (made / "shop.py").write_text(
        "import pad_it\n\n\ndef price(amount):\n    return pad_it.pad_start(str(amount), 8)\n"
    )
    (made / "test_shop.py").write_text(
        "import unittest\n\nimport shop\n\n\nclass TestShop(unittest.TestCase):\n"
        "    def test_price(self):\n        self.assertEqual(shop.price(12), '      12')\n"
    )
    git(made, "add", ".")
    git(made, "commit", "-qm", "begun")
    yield made
    conf.unlink()


@pytest.fixture
def project(tmp_path: Path, index: Registry) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    git(made, "init", "-q")
    (made / ".gitignore").write_text("node_modules/\n")
    (made / "package.json").write_text(
        json.dumps(
            {
                "name": "shop",
                "version": "1.0.0",
                "dependencies": {"tidy-pad": "^1.0.0", "loud": "^1.0.0", "sly": "^1.0.0"},
            },
            indent=2,
        )
    )
    (made / "src").mkdir()
    (made / "src/price.js").write_text(
        "const pad = require('tidy-pad')\n"
        "exports.price = amount => pad.padStart(String(amount), 8)\n"
    )
    (made / "test.js").write_text(
        "const assert = require('assert')\n"
        "assert.strictEqual(require('./src/price').price(12), '      12')\n"
        "assert.strictEqual(require('loud')('a'), 'A')\n"
    )
    lock(made)
    git(made, "add", ".")
    git(made, "commit", "-qm", "begun")
    return made


def lock(project: Path) -> None:
    """Lock the newest versions."""
    (project / "package-lock.json").unlink(missing_ok=True)
    words = ["npm", "install", "--package-lock-only", "--no-audit", "--no-fund"]
    subprocess.run(words, cwd=project, check=True, capture_output=True)


def maintained(gatehouse: Gatehouse, project: Path, *words: str) -> tuple[str, str]:
    """What is printed, and the commit that comes of it, as `git show` prints it; "" for none."""
    log = gatehouse.folder / "printed.txt"
    process = gatehouse.launch("maintain", f"--workspace={project}", "--branch", *words, log=log)
    process.wait(LONG_S)
    printed = log.read_text()
    found = re.search(r"gatehouse take (\w+)", printed)
    if found is None:
        return printed, ""
    gatehouse.ok("take", found[1])
    branch = f"gatehouse/maintenance-{found[1][:8]}"
    return printed, git(project, "show", "--format=%B", branch)


@pytest.fixture
def house(gatehouse: Path, tmp_path: Path, index: Registry) -> Iterator[Gatehouse]:
    """One that judges by the shipped policy; only that the index is on loopback is more."""
    shipped = (ROOT / "policy/examples/updates.yaml").read_text()
    policy = shipped.replace("allow:\n", f"allow:\n  - network(127.0.0.1:{index.port})\n", 1)
    made = Gatehouse(gatehouse, tmp_path, policy)
    yield made
    made.end()


@pytest.fixture
def modules() -> Iterator[Registry]:
    """The proxy of modules of the person's own configuration, on this machine. Go asks no HTTP
    proxy for what lies at an address of loopback."""
    if shutil.which("go") is None:
        pytest.skip("there is no go here")
    with registry.serving() as served:
        conf = Path(os.environ["HOME"]) / ".config/go/env"
        conf.parent.mkdir(parents=True, exist_ok=True)
        conf.write_text(f"GOPROXY=http://{HERE}:{served.port}\nGOSUMDB=off\n")
        yield served
        conf.unlink()


def tidied(project: Path, modules: Registry) -> None:
    """Tidy up by go itself, outside of Gatehouse."""
    env = os.environ | {"GOPROXY": modules.url, "GOFLAGS": "-modcacherw"}
    env |= {"GOMODCACHE": str(project.parent / "modules")}
    words = ["go", "mod", "tidy"]
    subprocess.run(words, cwd=project, check=True, capture_output=True, env=env)


PAD_GO = "package pad\n\nfunc Start(s string) string { return s }\n"


@pytest.mark.many
def test_go_s_modules_are_updated_and_a_young_one_is_held_back(
    gatehouse: Path, tmp_path: Path, modules: Registry
) -> None:
    """Requirements that the new version has come along, and go.sum has what a build needs."""
    names = ("example.org/tidy/pad", "example.org/loud", "example.org/deep")
    pad, loud, deep = names
    for name in names:
        modules.add_go(name, "v1.0.0", PAD_GO)
    made = tmp_path / "project"
    (made / "tool").mkdir(parents=True)
    (made / "go.mod").write_text(f"module example.org/shop\n\ngo 1.17\n\nrequire {pad} v1.0.0\n")
    (made / "main.go").write_text(
        f'// Prices.\npackage main\n\nimport (\n\t"fmt"\n\n\tp "{pad}"\n)\n\n'
        'func main() { fmt.Println(p.Start("1")) }\n'
    )
    (made / "tool/tool_linux.go").write_text(
        f'//go:build linux\n\npackage tool\n\nimport _ "{loud}"\n'
    )
    git(made, "init", "-q")
    tidied(made, modules)
    git(made, "add", ".")
    git(made, "commit", "-qm", "begun")
    yesterday = (datetime.now(UTC) - timedelta(hours=30)).isoformat()
    needs_deep = f"\nrequire {deep} v1.0.0\n"
    modules.add_go(
        pad, "v1.1.0", f"{PAD_GO}\n".replace("pad\n", f'pad\n\nimport _ "{deep}"\n', 1), needs_deep
    )
    modules.add_go(loud, "v1.2.0", PAD_GO, published=yesterday)
    shipped = (ROOT / "policy/examples/updates.yaml").read_text()
    rule = f"allow:\n  - network({HERE}:{modules.port})\n"
    house = Gatehouse(gatehouse, tmp_path, shipped.replace("allow:\n", rule, 1))
    printed, shown = maintained(house, made, "--updates")
    house.end()
    assert shown.startswith(f"Update {pad} from v1.0.0 to v1.1.0\n"), printed
    assert re.search(
        rf"^- {pad}: v1.0.0 -> v1.1.0, [\d,]+ days old, https://{pad}$", shown, re.MULTILINE
    )
    assert f"\n{loud} is held back\n" in shown
    assert "v1.2.0: released less than 3d ago" in shown
    (taken,) = re.findall(r"gatehouse take (\w+)", printed)
    git(made, "checkout", "-q", f"gatehouse/maintenance-{taken[:8]}")
    tidied(made, modules)
    assert git(made, "status", "--porcelain") == ""


@pytest.mark.many
@pytest.mark.skipif(shutil.which("pnpm") is None, reason="there is no pnpm here")
def test_pnpm_s_updates_are_locked_and_a_young_release_waits(
    house: Gatehouse, project: Path, index: Registry
) -> None:
    (project / "package-lock.json").unlink()
    subprocess.run(
        ["pnpm", "install", "--lockfile-only"], cwd=project, check=True, capture_output=True
    )
    git(project, "add", ".")
    git(project, "commit", "-qm", "by pnpm")
    yesterday = (datetime.now(UTC) - timedelta(hours=30)).isoformat()
    index.add_npm("loud", "1.1.0", code="throw new Error('no more')\n")
    index.add_npm("tidy-pad", "1.1.0", code=OLD_PAD, repository=REPOSITORY)
    index.add_npm(
        "sly",
        "1.1.0",
        published=yesterday,
        scripts={"postinstall": "echo ran > /workspace/merged/ran.txt"},
    )
    printed, shown = maintained(house, project, "--updates", "--tests", "node test.js")
    assert shown.startswith("Update tidy-pad from 1.0.0 to 1.1.0\n"), printed
    assert re.search(rf"^- tidy-pad: 1.0.0 -> 1.1.0, [\d,]+ days old, {PAGE}$", shown, re.MULTILINE)
    assert "\nloud 1.1.0 is held back\n" in shown
    assert "ran.txt" not in shown
    assert "- sly" not in shown


def test_an_update_that_breaks_a_test_is_mended_and_a_young_release_waits(
    house: Gatehouse, project: Path, index: Registry
) -> None:
    """One commit, whose message names old and new versions. What can't be mended is held back."""
    yesterday = (datetime.now(UTC) - timedelta(hours=30)).isoformat()
    index.add_npm("loud", "1.1.0", code="throw new Error('no more')\n")
    index.add_npm("tidy-pad", "1.1.0", code=NEW_PAD, repository=REPOSITORY)
    index.add_npm("sly", "1.0.1")
    index.add_npm("sly", "1.1.0", published=yesterday)
    printed, shown = maintained(
        house, project, "--updates", "--scope", "src/**", "--tests", "node test.js"
    )
    assert "the job: sly 1.0.0 -> 1.0.1, tidy-pad 1.0.0 -> 1.1.0; 2 files, all within" in printed
    message, _, diff = shown.partition("\ndiff --git")
    assert message.startswith("Update sly from 1.0.0 to 1.0.1, tidy-pad from 1.0.0 to 1.1.0\n")
    assert re.search(
        rf"^- tidy-pad: 1.0.0 -> 1.1.0, [\d,]+ days old, {PAGE}$", message, re.MULTILINE
    )
    assert re.search(r"^- sly: 1.0.0 -> 1.0.1, [\d,]+ days old$", message, re.MULTILINE)
    assert "\nloud 1.1.0 is held back\n" in message
    assert "Error: no more" in message
    assert "\ntidy-pad 1.1.0: the tests failed, and were mended\n" in message
    assert "TypeError: pad.padStart is not a function" in message
    assert "Changed for it: A recorded model replaced `padStart(`" in message
    assert "tests passed" in message
    assert "-exports.price = amount => pad.padStart" in diff
    assert "+exports.price = amount => pad.padLeft" in diff
    versions = re.findall(r'^[+-] +"version": "([\d.]+)"', diff, re.MULTILINE)
    assert versions == ["1.0.0", "1.0.1", "1.0.0", "1.1.0"], printed


@pytest.mark.many
def test_packages_of_a_group_alone_are_updated_and_none_goes_back(
    house: Gatehouse, project: Path, index: Registry
) -> None:
    """npm would put a locked version that isn't old enough back to an older one."""
    yesterday = (datetime.now(UTC) - timedelta(hours=30)).isoformat()
    index.add_npm("sly", "1.1.0", published=yesterday)
    lock(project)
    git(project, "commit", "-qam", "young")
    index.add_npm("tidy-pad", "1.0.1", code=OLD_PAD)
    index.add_npm("loud", "1.0.1", code=LOUD)
    printed, shown = maintained(house, project, "--updates", "npm:loud,sly")
    assert shown.startswith("Update loud from 1.0.0 to 1.0.1\n"), printed
    assert re.findall(r'\n[+-] +"version": "([\d.]+)"', shown) == ["1.0.0", "1.0.1"]
    printed, shown = maintained(house, project, "--updates", "npm")
    assert "older versions than now would come: sly 1.1.0 -> 1.0.0" in printed
    assert shown.startswith("Update loud from 1.0.0 to 1.0.1, tidy-pad from 1.0.0 to 1.0.1\n")
    assert "- sly:" not in shown


@pytest.mark.many
def test_nothing_is_updated_where_the_tests_fail_before(
    house: Gatehouse, project: Path, index: Registry
) -> None:
    index.add_npm("loud", "1.0.1", code=LOUD)
    printed, shown = maintained(house, project, "--updates", "--tests", "echo red; false")
    assert shown == ""
    assert "the tests fail before any update: exit code 1 red" in printed
    assert "the job: nothing to change" in printed


@pytest.mark.many
def test_pip_s_pins_are_updated_and_a_young_one_is_held_back(
    house: Gatehouse, python_project: Path, index: Registry
) -> None:
    yesterday = (datetime.now(UTC) - timedelta(hours=30)).isoformat()
    index.add_wheel("pad-it", "1.1.0", code=NEW_PY)
    index.add_wheel("quiet", "1.0.1")
    index.add_wheel("sly-one", "2.0.0", published=yesterday)
    tests = ".venv/bin/python -m unittest"
    printed, shown = maintained(
        house, python_project, "--updates", "pip", "--scope", "*.py", "--tests", tests
    )
    message, _, diff = shown.partition("\ndiff --git")
    changes = "https://example.org/pad-it/changes"
    row = rf"^- pad-it: 1.0.0 -> 1.1.0, [\d,]+ days old, {changes}$"
    assert re.search(row, message, re.MULTILINE), printed
    assert "\nsly-one is held back\n" in message
    assert "sly-one 2.0.0: released less than 3d ago" in message
    assert "AttributeError: module 'pad_it' has no attribute 'pad_start'" in message
    changed = [line for line in diff.splitlines() if re.match(r"[+-][^+-]", line)]
    assert changed == [
        '-dependencies = ["quiet==1.0.0"]',
        '+dependencies = ["quiet==1.0.1"]',
        "-pad-it == 1.0.0  # for prices",
        "+pad-it == 1.1.0  # for prices",
        "-    return pad_it.pad_start(str(amount), 8)",
        "+    return pad_it.pad_left(str(amount), 8)",
    ]


def test_cargo_s_updates_are_locked(
    house: Gatehouse, tmp_path: Path, index: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cargo(monkeypatch)
    index.add_crate("tinycrate", "1.2.3")
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / ".cargo").mkdir()
    (made / ".cargo/config.toml").write_text(
        '[source.crates-io]\nreplace-with = "near"\n'
        f'[source.near]\nregistry = "sparse+{index.url}/index/"\n'
    )
    (made / "Cargo.toml").write_text(
        '[package]\nname = "app"\nversion = "0.1.0"\n[dependencies]\ntinycrate = "1"\n'
    )
    (made / "src/lib.rs").write_text("")
    git(made, "init", "-q")
    subprocess.run(["cargo", "generate-lockfile"], cwd=made, check=True, capture_output=True)
    git(made, "add", ".")
    git(made, "commit", "-qm", "begun")
    index.add_crate("tinycrate", "1.2.4")
    printed, shown = maintained(house, made, "--updates")
    assert "Update tinycrate from 1.2.3 to 1.2.4\n" in shown, printed
    assert '+version = "1.2.4"' in shown


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv here")
def test_uv_s_updates_are_locked_and_a_young_one_is_held_back(
    house: Gatehouse, python_project: Path, index: Registry
) -> None:
    git(python_project, "rm", "-q", "requirements.txt")
    (python_project / "pyproject.toml").write_text(
        '[project]\nname = "shop"\nversion = "1"\nrequires-python = ">=3.8"\n'
        'dependencies = ["pad-it", "quiet", "sly-one"]\n'
        f'[[tool.uv.index]]\nurl = "{index.url}/simple/"\ndefault = true\n'
    )
    subprocess.run(["uv", "lock"], cwd=python_project, check=True, capture_output=True)
    git(python_project, "add", ".")
    git(python_project, "commit", "-qm", "by uv")
    yesterday = (datetime.now(UTC) - timedelta(hours=30)).isoformat()
    index.add_wheel("pad-it", "1.1.0", code=NEW_PY)
    index.add_wheel("quiet", "1.0.1")
    index.add_wheel("sly-one", "2.0.0", published=yesterday)
    tests = ".venv/bin/python -m unittest"
    printed, shown = maintained(
        house, python_project, "--updates", "uv", "--scope", "*.py", "--tests", tests
    )
    print(printed, shown)
    assert "\n- pad-it: 1.0.0 -> 1.1.0, " in shown, printed
    assert "\n- quiet: 1.0.0 -> 1.0.1, " in shown, printed
    assert "\nsly-one is held back\n" in shown
