"""The shell texts that managers are planned and run by."""

import json
import shlex
import subprocess

import pytest

from supervisor.core.actions import Packages
from supervisor.core.packages.install_recipes import (
    RECIPES,
    go_config,
    home_config,
    index_environment,
    index_script,
    is_at_home,
    is_planned,
    lock_after,
    names_packages_alone,
    pinned,
    places_written,
    plan_script,
    recipe_of,
    run_script,
    said,
    words_of,
)
from supervisor.core.packages.lock_files import Locked
from supervisor.core.packages.package_commands import (
    environment_at_home,
    environments,
    managers,
    parse_command,
    risky_flags,
)
from tests.tables import each_row

COMMANDS = [
    "npm install left-pad",
    "npm ci",
    "npm i '@s/b'",
    "pnpm add a",
    "yarn add a",
    "yarn",
    "bun add a",
    "pip install a",
    "python3 -m pip install a",
    "uv add a",
    "uv remove a",
    "uv sync",
    "uv pip install a",
    "poetry add a",
    "poetry install",
    "cargo add a",
    "cargo update",
    "cargo fetch",
    "go get x.test/a",
    "gem install a --install-dir vendor",
]


def test_what_saves_nothing_is_planned_as_if_it_did() -> None:
    action = parse_command("npm install a --no-save --save-exact")
    assert "--no-save" not in plan_script(action, ":", program="npm")
    assert "--save-exact" in plan_script(action, ":", program="npm")
    assert "--no-save" in run_script(action, ":", scripts=False, is_pinned=False)
    assert lock_after(action) == "node_modules/.package-lock.json"
    assert lock_after(parse_command("npm install a")) == "package-lock.json"
    assert lock_after(parse_command("uv add a --no-save")) == "uv.lock"


def test_a_frozen_lock_file_of_uv_is_all_that_is_installed() -> None:
    frozen, other = (parse_command(f"uv sync{flag}") for flag in (" --frozen", ""))
    assert "uv lock" not in plan_script(frozen, ":", program="uv")
    assert "uv lock" in plan_script(other, ":", program="uv")


def test_every_manager_that_is_read_has_a_recipe() -> None:
    assert RECIPES.keys() == managers().keys()


@each_row("command", COMMANDS)
@each_row("scripts", [True, False])
def test_the_texts_are_shell(command: str, scripts: bool) -> None:
    action = parse_command(command)
    recipe = recipe_of(action)
    assert recipe is not None
    own = home_config(recipe.kind, "https://x.test/it's")
    texts = [
        index_script(recipe, own),
        index_environment(action, ["https://x.test/it's", "https://y.test/"]),
        run_script(action, own, scripts=scripts, is_pinned=recipe.is_report),
    ]
    if is_planned(action):
        texts.append(plan_script(action, own, program="/opt/it's/x", python="3.13"))
    for text in texts:
        done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False)
        assert done.returncode == 0, (text, done.stderr)


def test_no_word_of_a_request_is_read_as_shell() -> None:
    action = Packages(
        manager="npm", operation="install", names=("$(touch evil)",), flags=("--x=`id`;",)
    )
    words = ["npm", "install", "--x=`id`;", "$(touch evil)"]
    assert words_of(action) == words
    text = run_script(action, ":", scripts=False, is_pinned=False)
    assert shlex.join([*words, "--ignore-scripts"]) in text
    # A flag that isn't known as harmless is no word of a plan.
    text = plan_script(action, ":", program="/usr/bin/npm")
    assert shlex.join(["/usr/bin/npm", "install", "--package-lock-only", "$(touch evil)"]) in text


def test_scripts_are_off_unless_a_person_says_so() -> None:
    action = parse_command("npm install -- a")
    off, on = (run_script(action, ":", scripts=one, is_pinned=False) for one in (False, True))
    assert "npm_config_ignore_scripts=true" in off
    assert "npm install --ignore-scripts -- a" in off
    assert "ignore_scripts" not in on
    assert "ignore-scripts" not in on
    assert "dangerously_allow_all_scripts" in on


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("npm install -D a", "npm install --package-lock-only -D a"),
        ("pip install -r r.txt -U a", "install --dry-run --quiet --report pip-report.json -U"),
        ("uv add --group x -r r.txt a", "uv add --no-sync --group x a --python python3"),
        ("uv pip install a", "uv pip install --dry-run -r requirements.txt"),
        ("cargo add -F x a", "cargo add -F x a"),
        ("uv sync --locked", "uv lock --python python3"),
        ("cargo fetch --locked", "cargo update --workspace"),
    ],
)
def test_a_plan_has_words_of_its_own(command: str, line: str) -> None:
    action = parse_command(command)
    text = plan_script(action, ":", program=action.manager)
    assert line in text
    assert "cargo update --workspace >&2" in text or action.operation != "add" or "uv" in text


def test_where_the_lock_file_says_it_all_no_program_runs() -> None:
    assert "npm ci" not in plan_script(parse_command("npm ci"), ":", program="npm")
    assert not is_planned(parse_command("yarn add a"))


def test_words_are_told_apart() -> None:
    line = "pip install --index-url https://x.test/ --pre --extra-index-url=https://y.test/ -i x a"
    found = said(parse_command(line))
    assert found.default == "https://x.test/"
    assert found.more == ("https://y.test/",)
    assert found.strange == ("--pre", "-i")
    assert found.names == ("x", "a")
    action = Packages(manager="pip", operation="install", flags=("-r=a.txt", "-q"))
    assert words_of(action) == ["pip", "install", "-r", "a.txt", "-q"]


def test_what_was_planned_of_pip_s_is_what_is_installed() -> None:
    locks = {("a", "1"): Locked("a", "1", integrity="sha256:00")}
    assert pinned(locks) == "a==1 --hash=sha256:00\n"
    text = run_script(parse_command("pip install a"), ":", scripts=False, is_pinned=True)
    assert "install --no-deps --require-hashes -r ~/.gatehouse/pinned.txt" in text
    action = parse_command("python3 -m pip install -e .")
    assert "install -e ." in run_script(action, ":", scripts=True, is_pinned=False)
    text = run_script(parse_command("uv pip install a"), ":", scripts=False, is_pinned=True)
    assert "uv pip install --no-config --no-deps -r ~/.gatehouse/pinned.txt" in text
    assert pinned({("a", "1"): Locked("a", "1")}) == "a==1\n"


def test_pnpm_runs_no_file_of_hooks_and_takes_a_lock_file_for_frozen_where_it_is_told() -> None:
    off = "--config.ignore-scripts=true --config.ignore-pnpmfile=true"
    install = parse_command("pnpm install")
    line = run_script(install, ":", scripts=False, is_pinned=False).splitlines()[-1]
    assert line == f"pnpm install --no-frozen-lockfile {off}"
    frozen = parse_command("pnpm install --frozen-lockfile")
    line = run_script(frozen, ":", scripts=True, is_pinned=False).splitlines()[-1]
    assert line == "pnpm install --frozen-lockfile --config.dangerously-allow-all-builds=true"
    assert f"/bin/pnpm install --no-frozen-lockfile --lockfile-only {off}" in plan_script(
        install, ":", program="/bin/pnpm"
    )
    assert "/bin/pnpm" not in plan_script(frozen, ":", program="/bin/pnpm")


def test_go_is_configured_as_the_person_s_own_and_by_no_project() -> None:
    told = {"GOPROXY": "https://a.test|http://b.test,direct", "GOSUMDB": "off", "GOPRIVATE": "$x"}
    assert go_config(json.dumps(told)) == (
        "export GOPROXY=https://a.test,http://b.test GOSUMDB=off GOPRIVATE='$x' GOENV=off"
        " GOFLAGS=-mod=mod GOWORK=off GOVCS='*:off' GOTOOLCHAIN=local"
    )
    for nothing in ("", "[]", '{"GOPROXY": "direct"}'):
        assert go_config(nothing).startswith("export GOPROXY=off GOENV=off")
    tidy = parse_command("go mod tidy")
    assert "/bin/go mod tidy" in plan_script(tidy, ":", program="/bin/go")
    assert plan_script(tidy, ":", program="/bin/go").endswith("cat go.mod go.sum")


@pytest.mark.parametrize(
    "command",
    ["npm i -g a", "pip install --user a", "cargo install a", "go install x.test/a@latest",
     "uv tool install a", "gem install a"],
)  # fmt: skip
def test_what_goes_to_the_home_has_nothing_to_do_with_the_project(command: str) -> None:
    action = parse_command(command)
    assert is_at_home(action) == (action.manager != "pip")
    assert is_planned(action) == (action.manager in ("npm", "pip"))


def test_an_environment_of_the_home_is_known_by_its_path() -> None:
    for path, found in (
        ("/home/agent/v", "/home/agent/v"),
        ("/home/agent/v/bin/python3", "/home/agent/v"),
        ("/home/agent/../other", ""),
        ("v", ""),
    ):
        action = parse_command(f"pip --python {path} install a")
        assert environment_at_home(action) == found
        assert bool(risky_flags(action)) == (path == "/home/agent/../other")
    assert environment_at_home(parse_command("npm install a")) == ""


def test_pip_installs_for_the_homes_python_where_there_is_no_environment() -> None:
    user = parse_command("pip install --user a")
    assert environments(user) == ()
    text = run_script(user, ":", scripts=False, is_pinned=True)
    assert "set -- python3 -P -m pip" in text
    assert "PIP_USER=1 PIP_BREAK_SYSTEM_PACKAGES=1" in text
    assert "--user" not in plan_script(user, ":", program="/usr/bin/pip")
    placed = run_script(parse_command("pip install -t x a"), ":", scripts=False, is_pinned=False)
    assert "PIP_USER=1" not in placed


def test_the_person_s_own_index_is_configured_below_the_project() -> None:
    assert ".npmrc" in home_config("npm", "https://x.test/")
    assert "pip.conf" in home_config("pypi", "https://x.test/")
    assert home_config("npm", "") == home_config("crates", "https://x.test/") == ":"


def test_the_indexes_in_force_are_what_a_manager_uses() -> None:
    indexes = ["https://x.test/", "https://y.test/"]
    found = index_environment(parse_command("pip install a"), indexes)
    assert "PIP_INDEX_URL=https://x.test/ PIP_EXTRA_INDEX_URL=https://y.test/" in found
    assert index_environment(parse_command("npm install a"), indexes) == ":"
    action = parse_command("npm install a --registry=https://x.test/")
    assert "npm_config_registry=https://x.test/" in index_environment(action, indexes)


def test_an_unknown_manager_has_none() -> None:
    assert recipe_of(parse_command("nonsense x")) is None


def test_reports_are_no_files_of_the_project() -> None:
    assert [name for name, one in RECIPES.items() if one.is_report] == ["pip"]
    assert words_of(parse_command("nonsense x")) == ["nonsense", "x"]
    assert words_of(Packages(manager="nonsense", operation="x")) == ["nonsense", "x"]


def test_pip_runs_by_the_environment_that_the_command_names() -> None:
    action = parse_command("pip --python my-env install --pre x")
    text = run_script(action, ":", scripts=False, is_pinned=False, environment="/w/it's")
    assert "set -- '/w/it'\"'\"'s/bin/python' -I -m pip" in text
    assert "PIP_USER=1" not in text
    assert '"$@" install --pre x' in text


@pytest.mark.parametrize(
    ("command", "environment", "how", "places"),
    [
        ("npm install -g a", "", "", {"installed", "packages"}),
        ("npm install -g a", "", "scripts", {"installed"}),
        ("pip install a", "", "", {"installed", "packages"}),
        ("pip uninstall a", "", "", {"installed", "packages"}),
        ("pip install a", "/w/.venv", "", set()),
        ("pip install -t x a", "", "", set()),
        ("uv add a", "", "", set()),
        ("npm install a", "", "", {"packages"}),
        ("npm install a", "", "scripts", set()),
        ("cargo fetch", "", "", {"packages"}),
        ("cargo fetch", "", "runs", set()),
        ("nonsense a", "", "", set()),
    ],
)
def test_an_install_that_may_run_the_agent_s_code_writes_nowhere_in_the_home(
    command: str, environment: str, how: str, places: set[str]
) -> None:
    action, scripts = parse_command(command), how == "scripts"
    found = places_written(action, environment, scripts=scripts, runs=how == "runs")
    assert {one.partition("/home/agent/.")[2] for one in found} == places


def test_a_file_of_the_project_s_is_no_name_of_a_package() -> None:
    for command in ("pip install a", "pip install --user a", "cargo install a"):
        assert names_packages_alone(parse_command(command))
    for command in ("pip install -r a.txt", "pip install ./a", "pip install --pre a"):
        assert not names_packages_alone(parse_command(command))
