"""The program that stands in for package managers: which words it hands over, and to which program
it gives all others."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from agent_image.programs.run_once import program_of
from supervisor.core.packages.package_commands import LEFT_ALONE, fetches, managers, parse_command
from supervisor.sessions.session_sandboxes import RUNNERS
from supervisor.settings import ROOT

PROGRAM = ROOT / "agent_image/programs/package_manager"


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A folder with the program under every name, where it says what it hands over to whom, and one
    with the real programs."""
    ours, real = tmp_path / "ours", tmp_path / "real"
    ours.mkdir()
    real.mkdir()
    script = tmp_path / "program"
    text = PROGRAM.read_text()
    script.write_text(text.replace("/opt/gatehouse/python -I -S", "/bin/echo ASKS"))
    script.chmod(0o755)
    for manager in managers().values():
        for name in manager.names:
            (ours / name).symlink_to(script)
            (real / name).write_text('#!/bin/sh\necho REAL ${0##*/} "$@"\n')
            (real / name).chmod(0o755)
    for name in RUNNERS:
        (ours / name).symlink_to(script)
        (real / name).symlink_to(real / "npm")
    return tmp_path


def said(folder: Path, *words: str, **more: str) -> str:
    path = f"{folder}/ours:{folder}/ours/:{folder}/real:/usr/bin:/bin"
    done = subprocess.run(
        words, env={"PATH": path, **more}, capture_output=True, text=True, check=False, cwd=folder
    )
    return done.stdout + done.stderr


def test_each_verb_that_may_fetch_is_handed_over_and_no_other_operation(stand_ins: Path) -> None:
    for manager, one in managers().items():
        for operation, others in one.operations.items():
            for verb in (operation, *others):
                words = (one.names[-1], "--some", *verb.split(), "x")
                is_asked = said(stand_ins, *words).startswith("ASKS ")
                wanted = fetches(parse_command(f"{manager} {verb} x"))
                assert is_asked is wanted, words


@pytest.mark.parametrize(
    "line",
    [
        "npm test", "npm run install:all", "npm --version", "npm install --help", "pip list",
        "pip3 uninstall -y x", "yarn --version", "yarn run build", "cargo --version",
        "cargo build --offline", "go version", "go vet --help", "gem list", "uv --version",
        "npx --version", "pip install --no-index x", "poetry show", "bun run x", "npm", "uvx -h",
        "npm exec --help", "cargo run --help", "uv run --offline x",
    ],
)  # fmt: skip
def test_what_fetches_nothing_is_the_next_program_on_the_path(stand_ins: Path, line: str) -> None:
    assert said(stand_ins, *line.split()) == f"REAL {line}\n"


def test_options_that_keep_a_manager_from_fetching_are_the_same_here_and_there() -> None:
    (line,) = [one for one in PROGRAM.read_text().splitlines() if "--offline" in one]
    assert {*line.partition(")")[0].replace("|", " ").split()} == LEFT_ALONE


@pytest.mark.parametrize(
    "line",
    [
        "yarn", "yarn --frozen-lockfile", "npx x", "cargo build", "go build ./...", "uv run x",
        "npm install evil --cache -h", "pip install evil --log -h", "npm it", "pip wheel evil",
        "cargo vendor", "npm init evil", "bun x evil", "pnpm -C a dlx evil", "uv tool run evil",
        "cargo install evil --root --offline", "npx x --help", "bunx x --version", "uvx x -h",
        "npm exec -- x --help", "pnpm dlx x --help", "uv run x --help", "cargo run -- --help",
        "go run . --help",
    ],
)  # fmt: skip
def test_what_may_lack_a_package_is_handed_over(stand_ins: Path, line: str) -> None:
    name = line.partition(" ")[0]
    program = "/opt/gatehouse/agent_image/programs/package.py"
    wanted = f"ASKS {program} {stand_ins}/real/{name}  {line}"
    assert said(stand_ins, *line.split()).strip() == wanted


def test_pip_started_by_pip_s_own_option_runs_in_its_environment(stand_ins: Path) -> None:
    (stand_ins / "ours/pip-python").symlink_to(stand_ins / "program")
    bin_folder = stand_ins / "venv/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to(stand_ins / "real/pip")
    runner = f"{stand_ins}/venv/lib/python3.11/site-packages/pip"
    assert said(stand_ins, "pip-python", runner, "list") == f"REAL python {runner} list\n"
    words = f"{bin_folder}/python {runner} pip-python install x"
    assert said(stand_ins, "pip-python", runner, "install", "x").endswith(f"package.py {words}\n")


def test_the_index_that_says_how_to_ask_is_kept_but_where_a_manager_only_reads(
    stand_ins: Path,
) -> None:
    index = "http://127.0.0.1:3702/ask"
    for name in ("npm", "yarn", "cargo"):
        (stand_ins / "real" / name).write_text('#!/bin/sh\necho "$npm_config_registry"\n')
    for line, is_kept in [
        ("npm view tiny", False), ("npm config get registry", False), ("yarn build", False),
        ("npm upda", True), ("npm install-t", True), ("npm run build", True),
        ("yarn --cwd a", True),
    ]:  # fmt: skip
        printed = said(stand_ins, *line.split(), npm_config_registry=index)
        assert printed == (f"{index}\n" if is_kept else "\n"), line


def test_a_manager_that_is_not_there_is_not_found(stand_ins: Path) -> None:
    (stand_ins / "real/gem").unlink()
    assert said(stand_ins, "gem", "list") == "gem: command not found\n"


def test_it_costs_next_to_nothing(stand_ins: Path) -> None:
    def best(program: str) -> float:
        took = []
        for _ in range(20):
            begun = time.perf_counter()
            subprocess.run([program, "test"], env=env, stdout=subprocess.DEVNULL, check=True)
            took.append(time.perf_counter() - begun)
        return min(took)

    env = {"PATH": f"{stand_ins}/ours:{stand_ins}/real:{os.environ['PATH']}"}
    assert best(f"{stand_ins}/ours/npm") - best(f"{stand_ins}/real/npm") < 0.005


def test_an_image_of_compose_has_a_stand_in_for_each() -> None:
    text = (ROOT / "agent_image/Dockerfile").read_text()
    (line,) = [one for one in text.splitlines() if "for one in " in one]
    known = {*RUNNERS, *(name for one in managers().values() for name in one.names)}
    assert {*line.partition("for one in ")[2].partition(";")[0].split()} == known


@pytest.mark.parametrize(
    ("line", "install", "command", "words"),
    [
        ("npx x a --b", "npm install -g x", "x", ["a", "--b"]),
        ("npx -y @o/x@1.2 -p", "npm install -g @o/x@1.2", "@o/x@1.2", ["-p"]),
        ("npx -p a --package=b c d", "npm install -g a b", "c", ["d"]),
        ("npm exec --yes x --loglevel=warn -- a --b", "npm install -g x", "x", ["a", "--b"]),
        ("npm x --package y -- z --b", "npm install -g y", "z", ["--b"]),
        ("pnpm dlx --silent x --help", "npm install -g x", "x", ["--help"]),
        ("yarn dlx -q x", "npm install -g x", "x", []),
        ("bunx --bun x a", "npm install -g x", "x", ["a"]),
        ("bun x x a", "npm install -g x", "x", ["a"]),
        (
            "npm create x@latest a -- --b",
            "npm install -g create-x@latest",
            "create-x@latest",
            ["a", "--b"],
        ),
        ("npm init @o", "npm install -g @o/create", "@o/create", []),
        ("yarn create @o/x --b", "npm install -g @o/create-x", "@o/create-x", ["--b"]),
        ("bun c @o@2", "npm install -g @o/create@2", "@o/create@2", []),
        ("uvx x@1.2 a", "uv tool install x==1.2", "x@1.2", ["a"]),
        ("uvx x@latest", "uv tool install x", "x@latest", []),
        ("uv tool run --from y[z] x", "uv tool install y[z]", "x", []),
        ("uvx --with y -p 3.12 x", "uv tool install --with y -p 3.12 x", "x", []),
    ],
)
def test_what_runs_a_package_once_names_its_install_and_its_program(
    line: str, install: str, command: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PWD", "/nowhere"), ("PATH", ""), ("npm_config_prefix", "/nowhere")):
        monkeypatch.setenv(name, value)
    name, *rest = line.split()
    program = program_of(name, rest)
    assert program is not None
    assert " ".join(program.missing()) == install
    assert (program.command, program.words) == (command, words)


@pytest.mark.parametrize(
    "line",
    [
        "npx",
        "npx --version",
        "npx -c x",
        "npx ./x",
        "npm run x",
        "uv run x",
        "uv tool list",
        "npm init",
        "npm init -y",
        "npm create github:o/x",
        "yarn create ./x",
    ],
)
def test_what_runs_no_package_is_the_manager_s_own(line: str) -> None:
    name, *rest = line.split()
    assert program_of(name, rest) is None
