"""A plan has no right that its agent hasn't (law 11): generated hostile projects, with canaries in
all that a package manager of a project may run, at an index that records what arrives."""

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.core.actions import Packages
from supervisor.core.packages.package_commands import parse_command
from supervisor.core.sessions import Session
from supervisor.errors import GatehouseError
from tests.fakes import registry
from tests.fakes.registry import Registry
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "s3cret-of-the-index-0123456789"
EXAMPLES = 30


@pytest.fixture(scope="module")
def index() -> Iterator[Registry]:
    with registry.serving() as served:
        served.add_npm("tiny-one", "1.0.0")
        served.add_wheel("tiny-wheel", "1.0.0")
        served.add_crate("tinycrate", "1.2.3")
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, index: Registry
) -> AsyncIterator[Supervised]:
    """With the shipped policy and the index allowed, asked where something would be published; the
    index has a named secret."""
    folder = tmp_path_factory.mktemp("plans")
    place = f"127.0.0.1:{index.port}"
    policy = f"version: 1\nallow: [network({place})]\nask: [network(PUT http://{place}/*)]\n"
    secrets = folder / "data" / "secrets"
    secrets.mkdir(parents=True)
    for name in ("one", "two"):
        (secrets / name).write_text(SECRET)
        (secrets / name).chmod(0o600)
    (folder / "data" / "credentials.yaml").write_text(
        f"version: 1\ncredentials:\n  one: {{preset: npm, hosts: ['{place}']}}\n"
    )
    toolchains = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".rustup"
    with pytest.MonkeyPatch.context() as person:
        # Tests have a home of their own, where rustup knows no toolchain.
        person.setenv("RUSTUP_HOME", os.environ.get("RUSTUP_HOME", str(toolchains)))
        person.setenv("npm_config_registry", f"{index.url}/")
        person.setenv("PIP_INDEX_URL", f"{index.url}/simple/")
        person.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple/")
        async with supervised(settings_in(folder, policy)) as running:
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(
    running: Supervised, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    workspace = make_repository(tmp_path_factory.mktemp("of-person") / "project")
    session = await running.start(workspace, "sh", "-c", "echo it is up; exec sleep 900")
    await running.printed(session, "it is up")
    yield session
    await running.parts.sessions.stop(session.id, reason="the test is over", by="the test")
    with running.answering(lambda one: "denied"):
        await running.ended(session)


def canary(index: Registry, name: str) -> str:
    """A program that says that it ran: in the copy, and to the index."""
    return (
        f"#!/bin/sh\necho {name} >> /workspace/merged/canary.txt\n"
        f"curl -s -X PUT --data x {index.url}/canary-{name}\n"
        f"curl -s {index.url}/canary-{name}\nexit 0\n"
    )


def python_canary(name: str) -> str:
    return (
        "import os, urllib.request\n"
        f"open('/workspace/merged/canary.txt', 'a').write({name!r})\n"
        f"os.system('curl -s -X PUT --data x $HTTP_PROXY/canary-{name}')\n"
    )


def hostile_files(index: Registry) -> dict[str, dict[str, str]]:
    """By name, files that get code to run in one manager or another."""
    git = f"git+{index.url}/evil.git"
    return {
        "npmrc": {
            ".npmrc": "git=./git\nscript-shell=./sh\nignore-scripts=false\n"
            "package-lock-only=false\nnode-options=--require ./evil.js\nallow-git=all\n",
            "git": canary(index, "npmrc-git"),
            "sh": canary(index, "npmrc-shell"),
            "evil.js": "require('child_process').execSync('./git')\n",
        },
        "package.json": {
            "package.json": json.dumps(
                {
                    "name": "app",
                    "version": "1.0.0",
                    "packageManager": "npm@1.0.0",
                    "scripts": dict.fromkeys(
                        ("preinstall", "install", "postinstall", "prepare"), "./git"
                    ),
                    "dependencies": {"evil": git, "tiny-one": "^1.0.0", "here": "file:./evil"},
                    "workspaces": ["evil"],
                    "overrides": {"tiny-one": git},
                }
            ),
            "git": canary(index, "package-git"),
            "evil/package.json": '{"name": "here", "scripts": {"prepare": "../git"}}',
        },
        "package-lock.json": {
            "package-lock.json": json.dumps(
                {
                    "lockfileVersion": 3,
                    "packages": {
                        "": {"dependencies": {"evil": git}},
                        "node_modules/evil": {"version": "1.0.0", "resolved": git},
                        "node_modules/tiny-one": {
                            "version": "1.0.0",
                            "dependencies": {"evil": git},
                        },
                        "node_modules/here": {"resolved": "evil", "link": True},
                    },
                }
            ),
            "node_modules/.package-lock.json": '{"packages": {"node_modules/tiny-one": {}}}',
        },
        "requirements": {
            "requirements.txt": "-e .\n./evil\n--no-binary :all:\ntiny-wheel\n-r more.txt\n",
            "more.txt": f"evil @ {git}\n--global-option=x\n",
            "setup.py": python_canary("setup"),
            "evil/setup.py": python_canary("local-folder"),
        },
        "environment": {
            ".venv/bin/python": canary(index, "venv-python"),
            ".venv/bin/pip": canary(index, "venv-pip"),
            ".venv/pyvenv.cfg": "home = /workspace/merged\nversion = 3.11.2\n",
            ".venv/lib/python3.11/site-packages/evil.pth": "import os; os.system('./git')\n",
            ".venv/lib/python3.11/site-packages/held-1.0.dist-info/METADATA": (
                f"Metadata-Version: 2.1\nName: held\nVersion: 1.0\nRequires-Dist: x @ {git}\n"
            ),
            ".venv/pip.conf": "[global]\nno-binary = :all:\n",
            "pip/__main__.py": python_canary("pip-module"),
            "sitecustomize.py": python_canary("sitecustomize"),
        },
        "pyproject": {
            "pyproject.toml": (
                '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
                '[project]\nname = "app"\nversion = "1"\ndependencies = ["tiny-wheel", "here"]\n'
                f'[tool.uv]\npackage = true\n[tool.uv.sources]\nhere = {{ path = "evil" }}\n'
                f'tiny-wheel = {{ git = "{index.url}/evil.git" }}\n'
                '[tool.poetry.requires-plugins]\nevil = { path = "evil" }\n'
            ),
            "evil.py": python_canary("backend"),
            "evil/setup.py": python_canary("uv-path"),
            "uv.toml": "no-build = false\n",
        },
        "cargo": {
            "Cargo.toml": (
                '[package]\nname = "app"\nversion = "0.1.0"\nbuild = "canary.rs"\n'
                '[dependencies]\nhere = { path = "evil" }\n'
                f'evil = {{ git = "{index.url}/evil.git" }}\n'
            ),
            "evil/Cargo.toml": '[package]\nname = "here"\nversion = "0.1.0"\n',
            ".cargo/config.toml": (
                '[build]\nrustc = "./rustc"\nrustc-wrapper = "./rustc"\n'
                '[registry]\nglobal-credential-providers = ["./rustc"]\n'
                '[source.crates-io]\nreplace-with = "near"\n'
                f'[source.near]\nregistry = "sparse+{index.url}/index/"\n'
            ),
            "rustc": canary(index, "rustc"),
            "rust-toolchain.toml": '[toolchain]\npath = "."\n',
        },
        "pnpm": {
            ".pnpmfile.cjs": "require('child_process').execSync('./git')\n",
            ".pnpmfile.mjs": "import c from 'child_process'; c.execSync('./git')\n",
            "pnpm-workspace.yaml": "pnpmfile: ./.pnpmfile.cjs\nscriptShell: ./sh\n"
            "nodeOptions: --require=./.pnpmfile.cjs\nconfigDependencies: {evil: 1.0.0}\n"
            "patchedDependencies: {tiny-one: evil.patch}\n",
            "pnpm-lock.yaml": "lockfileVersion: '9.0'\npackages:\n  evil@1.0.0:\n"
            f"    resolution: {{type: git, repo: '{git}', commit: abc}}\n",
            "git": canary(index, "pnpm-git"),
            "sh": canary(index, "pnpm-shell"),
        },
        "go": {
            "go.mod": "module x.test/app\n\ngo 1.17\n\ntoolchain go1.99.1-evil\n\n"
            f"replace example.org/x => 127.0.0.1:{index.port}/evil v1.0.0\n",
            "go.work": "go 1.18\n\nuse ./evil\n",
            "go.env": f"GOPROXY={index.url}/evil\nGOFLAGS=-toolexec=./git\n",
            "main.go": '//go:generate ./git\npackage main\n\nimport _ "example.org/evil/x"\n',
            "vendor/modules.txt": "# example.org/x v1.0.0\n",
            "git": canary(index, "go-git"),
            "go": canary(index, "go-go"),
        },
        "yarn": {
            ".yarnrc.yml": "yarnPath: ./yarn.js\n",
            ".yarnrc": 'yarn-path "./yarn.js"\n',
            "yarn.js": "require('child_process').execSync('./git')\n",
            ".pnpmfile.cjs": "require('child_process').execSync('./git')\n",
            "git": canary(index, "yarn-git"),
        },
        "programs": {
            name: canary(index, f"program-{name}")
            for name in ("npm", "node", "python3", "uv", "cargo", "git", "sh", "tar", "find")
        },
    }


COMMANDS = (
    "npm install tiny-one",
    "npm install",
    "npm ci",
    "npm update",
    "npm uninstall tiny-one",
    "pip install tiny-wheel",
    "pip install -r requirements.txt",
    "pip install -e .",
    "pip download tiny-wheel",
    "uv add tiny-wheel",
    "uv sync",
    "uv pip install -r requirements.txt",
    "cargo add tinycrate",
    "cargo update",
    "cargo fetch",
    "yarn add tiny-one",
    "pnpm install",
    "pnpm add tiny-one",
    "pnpm update",
    "bun add tiny-one",
    "poetry add tiny-wheel",
    "go get example.org/x",
    "go mod tidy",
)
FLAGS = (
    "--ignore-scripts=false",
    "--package-lock-only=false",
    "--git=./git",
    "--script-shell=./sh",
    "--no-binary=:all:",
    "--node-options=--require=./evil.js",
    "--prefix=evil",
    "--config=build.rustc='./rustc'",
    "--python=.venv/bin/python",
    "--dry-run=false",
)


async def plan(
    running: Supervised, session: Session, index: Registry, line: str, files: dict[str, str]
) -> Packages | None:
    """What is planned of a command line in a copy that an agent filled; None where it is refused.

    Asserts law 11 of it."""
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    for entry in copy.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for path, text in files.items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text)
        (copy / path).chmod(0o755)
    index.seen.clear()
    try:
        found = await running.parts.installs.planned(session.id, parse_command(line))
    except GatehouseError as error:
        print("refused:", line, error)
        found = None
    assert not (copy / "canary.txt").exists(), (line, (copy / "canary.txt").read_text())
    assert {method for method, _, _ in index.seen} <= {"GET", "HEAD"}
    assert not [path for _, path, _ in index.seen if "canary" in path or "evil" in path]
    assert SECRET not in str(index.seen)
    return found


async def test_no_project_of_an_agent_s_gets_code_to_run_or_a_secret_out(
    running: Supervised, session: Session, index: Registry
) -> None:
    hostile = hostile_files(index)

    cases: list[tuple[str, dict[str, str]]] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.sampled_from(COMMANDS),
        st.lists(st.sampled_from(FLAGS), max_size=2, unique=True),
        st.sets(st.sampled_from(sorted(hostile)), min_size=1),
    )
    def draw(command: str, flags: list[str], names: set[str]) -> None:
        line = " ".join((command, *flags))
        cases.append((line, {path: text for name in names for path, text in hostile[name].items()}))

    draw()
    for line, files in cases:
        await plan(running, session, index, line, files)


@pytest.mark.parametrize(
    ("line", "names", "planned"),
    [
        ("npm install tiny-one", ["npmrc", "package.json", "programs"], "tiny-one"),
        ("npm update", ["npmrc", "package.json", "package-lock.json"], "tiny-one"),
        ("npm install --ignore-scripts=false --package-lock-only=false", ["package.json"], ""),
        ("pip install -r requirements.txt", ["requirements", "environment"], "tiny-wheel"),
        ("uv add tiny-wheel", ["pyproject", "environment"], "tiny-wheel"),
        ("cargo add tinycrate", ["cargo", "programs"], "tinycrate"),
        ("pnpm add tiny-one", ["pnpm", "package.json", "programs"], "tiny-one"),
        ("go get example.org/x", ["go", "programs"], ""),
        ("yarn add tiny-one", ["yarn", "programs"], ""),
    ],
)
async def test_the_ways_that_were_open(
    running: Supervised,
    session: Session,
    index: Registry,
    line: str,
    names: list[str],
    planned: str,
) -> None:
    """What comes from the index is planned beside them, and they stand on the card as not known:
    no rule may allow that."""
    manager = line.partition(" ")[0]
    if (
        shutil.which(manager) is None
        or subprocess.run([manager, "help"], capture_output=True, check=False).returncode
    ):  # a shim of rustup's finds no toolchain in a home of the tests' own
        pytest.skip(f"there is no {manager} here that this user can use")
    hostile = hostile_files(index)
    files = {path: text for name in names for path, text in hostile[name].items()}
    found = await plan(running, session, index, line, files)
    assert found is not None, line
    assert {one.name for one in found.plan} == ({planned} if planned else set())
    assert found.unknown
    assert found.doubt
