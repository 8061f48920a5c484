"""Programs that push and install by themselves, as their users have them: git's libraries,
pre-commit, cargo with an index on this machine."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import trustme

from tests.conftest import ROOT
from tests.doors.conftest import House, Started
from tests.doors.test_git_of_programs import COMMIT, at_origin, push_of
from tests.doors.test_installs_of_programs import approved, ended, install_of
from tests.fakes import registry
from tests.fakes.site import Site
from tests.fakes.supervised import make_repository

pytestmark = [pytest.mark.many, pytest.mark.timeout(600)]

NEAR = "host.gatehouse.internal"
WHEELS = ("GitPython==3.1.45", "pre-commit==4.3.0")
MODULES = ("simple-git@3.28.0",)


@pytest.fixture(scope="module")
def programs() -> Path:
    """These as pip and npm install them, once, below the checkout."""
    folder = ROOT / f".cache-{os.getuid()}" / "programs"
    python = folder / "bin/python"
    for command in (
        ("/usr/bin/python3", "-m", "venv", str(folder)),
        (str(python), "-m", "pip", "install", "-q", *WHEELS),
        ("npm", "install", "--silent", "--no-audit", "--prefix", str(folder), *MODULES),
    ):
        if (folder / "done").exists():
            break
        folder.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"they can't be installed here: {error}")
    (folder / "done").touch()
    return folder


def begun(house: House, script: str, *words: str) -> Started:
    place = ("--workspace", str(house.workspace))
    return house.start("run", *place, *words, "--", "bash", "-c", f"{script}\necho ENDED $?")


def answer_push(house: House, *, is_approved: bool) -> None:
    """Answer the push that waits."""
    push = push_of(house)
    if is_approved:
        house.ok("approve", push["id"])
    else:
        house.ok("deny", push["id"], "--reason", "use a branch")


GIT_PYTHON = """
import git
repository = git.Repo(".")
(one,) = repository.remote("origin").push("feature/x:refs/heads/by-library")
print("SUMMARY", one.summary.strip(), bool(one.flags & one.ERROR))
print("FETCHED", [str(one) for one in repository.remote("origin").fetch()])
"""


@pytest.mark.parametrize("is_approved", [True, False])
def test_git_python_pushes_and_reads_the_answer(
    house: House, programs: Path, *, is_approved: bool
) -> None:
    house.up()
    run = f"{programs}/bin/python -c {shlex.quote(GIT_PYTHON)}"
    started = begun(house, f"{COMMIT} {run}", "--bind", str(programs))
    answer_push(house, is_approved=is_approved)
    printed = ended(started)
    expected = "SUMMARY [new branch] False" if is_approved else "denied by operator (cli): use"
    assert expected in printed
    assert "FETCHED ['origin/" in printed
    assert at_origin(house, "by-library") == ("one more line" if is_approved else "")


SIMPLE_GIT = """
const git = require(process.argv[1] + "/node_modules/simple-git").simpleGit()
git.push("origin", "feature/x", ["--set-upstream"]).then(
  (done) => console.log("PUSHED", JSON.stringify(done.pushed)),
  (error) => console.log("FAILED", error.message),
)
"""


@pytest.mark.parametrize("is_approved", [True, False])
def test_simple_git_pushes_and_reads_the_answer(
    house: House, programs: Path, *, is_approved: bool
) -> None:
    house.up()
    run = f"node -e {shlex.quote(SIMPLE_GIT)} {programs}"
    started = begun(house, f"{COMMIT} {run}", "--bind", str(programs))
    answer_push(house, is_approved=is_approved)
    printed = ended(started)
    if is_approved:
        assert '"local":"refs/heads/feature/x"' in printed.partition("PUSHED")[2]
    else:
        assert "denied by operator (cli): use a branch" in printed.partition("FAILED")[2]
    assert at_origin(house, "feature/x") == ("one more line" if is_approved else "")


HOOKS = """
- {id: says, name: says, language: script, entry: say.sh, pass_filenames: false, always_run: true}
- {id: counts, name: counts, language: python, entry: counts, pass_filenames: false,
   always_run: true}
"""
SETUP = 'from setuptools import setup\nsetup(name="counts", py_modules=["counts"])\n'


def test_pre_commit_takes_its_hooks_from_a_server_of_this_machine(
    house: House, programs: Path, tmp_path: Path, authority: trustme.CA
) -> None:
    hooks = make_repository(
        tmp_path / "hooks",
        {".pre-commit-hooks.yaml": HOOKS, "say.sh": "#!/bin/sh\necho HOOKED\n", "setup.py": SETUP},
    )
    (hooks / "say.sh").chmod(0o755)
    with Site(tmp_path / "site", authority, (NEAR,)) as site:
        for words in (
            ("commit", "-qam", "executable"),
            ("tag", "v1"),
            ("push", "-q", str(site.repository), "v1", "HEAD:refs/heads/hooks"),
        ):
            subprocess.run(["git", *words], cwd=hooks, check=True)
        url = f"http://{NEAR}:{site.http_port}/project.git"
        config = f"repos:\n- repo: {url}\n  rev: v1\n  hooks: [{{id: says, verbose: true}}]\n"
        (house.workspace / ".pre-commit-config.yaml").write_text(config)
        house.git("add", "-A")
        house.git("commit", "-qm", "with hooks")
        house.up()
        path = f"PATH={programs}/bin:$PATH"
        started = begun(house, f"{path} pre-commit run --all-files", "--bind", str(programs))
        asked = house.until_told(
            lambda: [one for one in house.requests() if one["category"] == "network"], "the hooks"
        )
        assert f"{NEAR}:{site.http_port}" in asked[0]["title"]
        house.ok("rules", "add", "allow", f"network({NEAR}:{site.http_port})")
        assert "HOOKED" in ended(started)
        # Its environment for Python would be an install of a folder in its cache: no card can show
        # what that brings.
        (house.workspace / ".pre-commit-config.yaml").write_text(config.replace("says", "counts"))
        started = begun(house, f"{path} pre-commit run --all-files", "--bind", str(programs))
        printed = ended(started, 3)
        assert "gatehouse: the folder `/home/agent/.cache/pre-commit/repo" in printed, printed
        assert "is outside the workspace; use one below /workspace/merged" in printed


def test_cargo_builds_by_an_index_on_this_machine(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.channels.test_packages import use_cargo

    use_cargo(monkeypatch)
    done = subprocess.run(["rustup", "which", "cargo"], capture_output=True, text=True, check=True)
    with registry.serving(name=NEAR) as index:
        index.add_crate("tinycrate", "1.2.3")
        files = {
            "src/main.rs": 'fn main() { println!("BUILT") }\n',
            "Cargo.toml": (
                '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n'
                '[dependencies]\ntinycrate = "1"\n'
            ),
            ".cargo/config.toml": (
                '[source.crates-io]\nreplace-with = "near"\n'
                f'[source.near]\nregistry = "sparse+{index.url}/index/"\n'
            ),
        }
        for name, text in files.items():
            (house.workspace / name).parent.mkdir(exist_ok=True)
            (house.workspace / name).write_text(text)
        house.up()
        house.ok("rules", "add", "allow", f"network({NEAR}:{index.port})")
        folder = str(Path(done.stdout.strip()).parents[1])
        started = begun(house, "cargo run", "--bind", folder)
        approved(house, started, "cargo fetch")
        assert "BUILT" in ended(started)


def test_one_script_commits_installs_tests_and_pushes(house: House) -> None:
    """Each part is asked when it comes to it, and ends as it would."""
    with registry.serving() as index:
        index.add_npm("tiny-one", "1.0.0")
        index.add_wheel("tiny-wheel", "1.0.0")
        (house.workspace / "package.json").write_text(
            '{"name": "app", "version": "1.0.0", "dependencies": {"tiny-one": "1.0.0"}}\n'
        )
        (house.workspace / "requirements.txt").write_text("tiny-wheel\n")
        (house.workspace / ".gitignore").write_text("node_modules\n.venv\n")
        (house.workspace / "Makefile").write_text(
            "all: install test publish\n"
            "install:\n\tnpm install\n\tpython3 -m venv .venv\n"
            "\t.venv/bin/pip install -r requirements.txt\n"
            "test:\n\tnode -e 'require(\"tiny-one\")'\n\t.venv/bin/python -c 'import tiny_wheel'\n"
            "publish:\n\tgit checkout -qb feature/x\n\tgit add -A\n\tgit commit -qm 'one more line'"
            " && git push origin feature/x\n"
        )
        house.up(npm_config_registry=f"{index.url}/", PIP_INDEX_URL=f"{index.url}/simple/")
        house.ok("rules", "add", "allow", f"network(127.0.0.1:{index.port})")
        started = begun(house, "make && echo ALL")
        approved(house, started, "npm install")
        pip = install_of(house, "pip install -r requirements.txt")
        house.ok("approve", pip["id"])
        house.ok("approve", push_of(house)["id"])
        assert "ALL" in ended(started)
        assert at_origin(house, "feature/x") == "one more line"
