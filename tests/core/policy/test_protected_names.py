"""The table of protected names: each has a path that is asked about or denied under
`filesystem(**)`, a near miss that isn't, and a source."""

from pathlib import Path

import pytest

from supervisor.core.actions import FileChange, FileStep
from supervisor.core.files.change_card import make_card
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.file_rules import FileJudge
from supervisor.core.policy.policy_text import parse_policy
from supervisor.core.policy.protected_names import (
    MARK,
    Protection,
    ProtectionLevel,
    built_in,
    entries,
    mark_of,
    sources,
)
from supervisor.core.text.paths import canonical
from tests.tables import each_row

ROOT = Path(__file__).resolve().parents[3]
NAMES = [(part, name) for part in ("deny", "ask") for name in built_in()[part]]  # type: ignore[index]
POLICY = parse_policy('version: 1\nallow: ["filesystem(**)"]\n', "test")


def verdict(path: str) -> str:
    return evaluate(POLICY, FileChange(operation="write", path=path), now=0.0).decision


def example(name: str) -> str:
    """A path that has this name."""
    return name.replace("/**", "/x").replace("*", "y")


def near_miss(name: str) -> str:
    """A path that is spelled almost like it."""
    plain = name.removesuffix("/**")
    return (
        f"{plain.replace('*', 'y')}-like"
        if plain.startswith("*")
        else f"un{plain.replace('*', 'y')}"
    )


@each_row(("part", "name"), NAMES, ids=[name for _, name in NAMES])
def test_each_name_is_protected_under_a_wildcard_and_its_near_miss_is_not(
    part: str, name: str
) -> None:
    path = example(name)
    for spelled in (path, f"deep/er/{path}", path.upper(), f"{path}/below"):
        assert verdict(spelled) == part, spelled
    assert verdict(near_miss(name)) == "allow", near_miss(name)
    judge = FileJudge((), Protection())
    assert judge.protected(canonical(path).text) is not None


def test_the_table_has_what_the_contract_names() -> None:
    named = """.github/** .gitlab-ci.yml .circleci/** .reviewerc .husky/** .githooks/**
    .pre-commit-config.yaml .envrc .vscode/** .idea/**
        .devcontainer/** sitecustomize.py *.pth .venv/** node_modules/.bin/** .gitattributes
        .gitmodules .claude/** .cursor/** .mcp.json
        CLAUDE.md AGENTS.md .gatehouseignore .npmrc .yarnrc* .pypirc pip.conf bunfig.toml
        .env .env.* .env-* .env_* .ssh/** .bashrc .zshrc .profile
        mise.toml .overcommit.yml lefthook.toml .hgrc .jjconfig.toml .exrc .nvim.lua .run/**
        .kiro/** .amazonq/** .clinerules .qwen/**
        .goosehints .crush.json .gemini/** .windsurf/** .zed/** .cirrus.yml .semaphore/**
        .tekton/** .teamcity/** buildspec.yml
        .buildkite/** Jenkinsfile .drone.yml .woodpecker/** azure-pipelines.yml
        bitbucket-pipelines.yml"""
    assert set(named.split()) <= set(built_in()["ask"])
    assert {".git/**", ".hg/**", ".jj/**"} <= set(built_in()["deny"])


def test_each_entry_says_why_and_who_says_so() -> None:
    parts: tuple[ProtectionLevel, ...] = ("deny", "ask", "mark")
    found = [entry for part in parts for entry in entries()[part]]
    assert all(entry.names and entry.why for entry in found)
    for entry in found:
        assert entry.source.startswith("https://") or (ROOT / entry.source).is_file(), entry.source
    names = [name for entry in found for name in entry.names]
    assert len(names) == len(set(names)) == len(sources())


@each_row(
    "path",
    [
        "src/main.py",
        "src/.environment.ts",
        ".envelope",
        "lib/hooks.py",
        "docs/rules.md",
        "app/mise.py",
        "config/goose.rb",
        "src/head.ts",
        "tests/fixtures/env.json",
        "src/crush.ts",
        "zuul/jobs.py",
        "src/amplify.ts",
        "lefthook.md",
        "cursor.py",
        "app/kiro/index.ts",
        "web/vim.js",
        "helix/dna.py",
        "run/start.go",
        ".editorconfig",
        ".gitignore",
        ".hgignore",
        "README.md",
        "tools/overcommit.go",
        "pkg/tekton/types.go",
        "ci/run.py",
        "claude.py",
        "agents/base.py",
        "src/venv.rs",
        "codex/page.md",
        "replit.go",
        "nova.py",
        "tsconfig.json",
        "go.mod",
        "requirements.txt",
        "Cargo.lock",
        "package-lock.json",
        "rules/one.yaml",
        ".prettierignore",
        ".nvmrc",
        ".python-version",
        ".tool-versions",
    ],
)
def test_ordinary_files_are_ordinary(path: str) -> None:
    assert verdict(path) == "allow"
    assert not mark_of(FileChange(operation="write", path=path))


@each_row("name", built_in()["mark"])
def test_what_runs_with_tests_or_a_build_is_marked_and_not_asked(name: str) -> None:
    path = example(name)
    for spelled in (path, f"deep/er/{path}"):
        action = FileChange(operation="write", path=spelled)
        assert mark_of(action) == MARK
        assert verdict(spelled) == "allow"
        assert make_card(action, None, None, None).mark == MARK
    assert not mark_of(FileChange(operation="write", path=near_miss(name)))


@pytest.mark.parametrize(
    ("action", "is_marked"),
    [
        (FileChange(operation="delete", path="Makefile"), False),
        (FileChange(operation="rename", path="x", to="a/Makefile"), True),
        (FileChange(operation="rename", path="Makefile", to="x"), False),
        (FileChange(operation="write", path="Makefile/x"), False),
        (
            FileChange(
                operation="swap", path="a", steps=(FileStep(operation="write", path="a/setup.py"),)
            ),
            True,
        ),
        (
            FileChange(
                operation="swap", path="a", steps=(FileStep(operation="delete", path="a/setup.py"),)
            ),
            False,
        ),
    ],
)
def test_what_comes_is_marked_and_what_goes_is_not(action: FileChange, is_marked: bool) -> None:
    assert bool(mark_of(action)) is is_marked
