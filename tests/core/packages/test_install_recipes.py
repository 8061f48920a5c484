"""The shell texts that managers are planned and run by."""

import shlex
import subprocess

import pytest

from supervisor.core.actions import Packages
from supervisor.core.packages.install_recipes import (
    RECIPES,
    home_config,
    index_script,
    lock_script,
    plan_script,
    recipe_of,
    run_script,
    why_not,
    words_of,
)
from supervisor.core.packages.package_commands import managers, parse_command

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


def test_every_manager_that_is_read_has_a_recipe() -> None:
    assert RECIPES.keys() == managers().keys()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("scripts", [True, False])
def test_the_texts_are_shell(command: str, scripts: bool) -> None:
    action = parse_command(command)
    recipe = recipe_of(action)
    assert recipe is not None
    assert not why_not(action)
    own = home_config(recipe.kind, "https://x.test/it's")
    for text in (
        index_script(recipe, action, own),
        plan_script(recipe, action, own),
        run_script(action, own, scripts=scripts),
        lock_script(recipe),
    ):
        done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, check=False)
        assert done.returncode == 0, (text, done.stderr)


def test_no_word_of_a_request_is_read_as_shell() -> None:
    action = Packages(
        manager="npm", operation="install", names=("$(touch evil)",), flags=("--x=`id`;",)
    )
    for text in (run_script(action, ":", scripts=False), plan_script(RECIPES["npm"], action, ":")):
        assert shlex.join(words_of(action)) in text
    assert words_of(action) == ["npm", "install", "--x=`id`;", "$(touch evil)"]


def test_scripts_are_off_unless_a_person_says_so() -> None:
    action = parse_command("npm install a")
    off, on = (run_script(action, ":", scripts=which) for which in (False, True))
    assert "npm_config_ignore_scripts=true" in off
    assert "ignore_scripts" not in on
    assert "dangerously_allow_all_scripts" in on


def test_flags_of_a_plan_stand_behind_the_operation() -> None:
    recipe = recipe_of(action := parse_command("pnpm add -D -- a"))
    assert recipe is not None
    assert "pnpm add --lockfile-only -D -- a" in plan_script(recipe, action, ":")
    recipe = recipe_of(action := parse_command("python3 -m pip install a"))
    assert recipe is not None
    assert " -m pip install --dry-run --quiet --report pip-report.json a" in plan_script(
        recipe, action, ":"
    )
    recipe = recipe_of(action := parse_command("bun"))
    assert recipe is not None
    assert "bun --lockfile-only" in plan_script(recipe, action, ":")


@pytest.mark.parametrize(
    "command",
    ["npm i -g a", "pip install --user a", "cargo install a", "go install x.test/a@latest",
     "uv tool install a", "gem install a"],
)  # fmt: skip
def test_what_would_go_to_a_home_is_not_carried_out(command: str) -> None:
    assert "outside of the project" in why_not(parse_command(command))


def test_the_person_s_own_index_is_configured_below_the_project() -> None:
    assert ".npmrc" in home_config("npm", "https://x.test/")
    assert "pip.conf" in home_config("pypi", "https://x.test/")
    assert home_config("npm", "") == home_config("crates", "https://x.test/") == ":"


def test_a_scope_s_index_is_asked_for_too() -> None:
    action = parse_command("npm install @s/b")
    assert "npm config get @s:registry" in index_script(RECIPES["npm"], action, ":")


def test_an_unknown_manager_has_none() -> None:
    assert recipe_of(parse_command("nonsense x")) is None


def test_what_says_how_the_copy_is_has_a_format_of_its_own() -> None:
    assert RECIPES["npm"].installed_format == "package-lock.json"
    assert RECIPES["cargo"].installed_format == "Cargo.lock"
    assert [name for name, one in RECIPES.items() if one.is_report] == ["pip", "gem"]
