"""The diff under review is found, and nothing that the repository configures is run on the way."""

from pathlib import Path

import msgspec
import pytest

from agent_image.reviewer.repository import GitError, GivenChange, Repository, not_shown
from supervisor.sessions import workspace_git
from tests.agent_image.conftest import git


def test_uncommitted_changes_are_compared_with_head(repo: Path) -> None:
    repository = Repository(repo)
    change = repository.change("auto")
    assert change.base == change.head == git(repo, "rev-parse", "HEAD")
    assert change.files == ("src/app.py",)
    assert change.untracked == ("new.txt",)
    assert b"+    return a - b" in repository.diff(change, [], 10_000).data


def test_a_branch_is_compared_with_its_trunk(repo: Path) -> None:
    trunk = git(repo, "rev-parse", "HEAD")
    git(repo, "switch", "-q", "-c", "feature")
    git(repo, "commit", "-q", "-a", "-m", "change")
    assert Repository(repo).change("auto").base == trunk


def test_a_clean_trunk_is_compared_with_the_commit_before(repo: Path) -> None:
    git(repo, "commit", "-q", "-a", "-m", "change")
    change = Repository(repo).change("auto")
    assert change.base == git(repo, "rev-parse", "HEAD~1")
    assert change.files == ("src/app.py",)


def test_a_repository_without_commits_and_a_plain_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert Repository(tmp_path).change("auto").base is None
    with pytest.raises(GitError, match="not a git repository"):
        Repository(tmp_path).change("HEAD")
    git(tmp_path, "init", "-q")
    assert Repository(tmp_path).change("auto").untracked == ("a",)


@pytest.mark.parametrize(
    "base", ["nonsense", "--output=/tmp/x", "HEAD^{tree}", "", "a b", "HEAD --"]
)
def test_what_is_no_commit_is_refused(repo: Path, base: str) -> None:
    with pytest.raises(GitError, match="no revision"):
        Repository(repo).change(base)


def test_options_in_paths_are_paths(repo: Path, tmp_path: Path) -> None:
    repository = Repository(repo)
    change = repository.change("HEAD")
    out = tmp_path / "written"
    assert repository.diff(change, [f"--output={out}"], 1000).data == b""
    assert repository.diff(change, [":(top)src"], 1000).data == b""
    assert not out.exists()


def test_nothing_of_the_repository_is_run(repo: Path, tmp_path: Path) -> None:
    """Each way by which git starts a program that the repository's own files name."""
    trap = tmp_path / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/sprung\ncat 2>/dev/null\n')
    trap.chmod(0o755)
    for setting in (
        "core.fsmonitor", "diff.external", "core.pager", "pager.diff", "core.sshCommand",
        "core.editor", "diff.evil.command",
        "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process",
        "filter.a.b c.clean",
        "credential.helper", "core.alternateRefsCommand", "interactive.diffFilter", "gpg.program",
        "core.askPass",
    ):  # fmt: skip
        git(repo, "config", setting, str(trap))
    git(repo, "config", "core.hooksPath", str(tmp_path))
    git(repo, "config", "filter.evil.required", "true")
    git(repo, "config", "diff.trustExitCode", "true")
    (repo / ".gitattributes").write_text("*.py filter=evil diff=evil\n*.md filter=a.b\n")
    (repo / "src" / "app.py").write_text("changed again, with a length of its own\n")
    (repo / "README.md").write_text("also changed\n")
    repository = Repository(repo)
    change = repository.change("auto")
    data = repository.diff(change, [], 100_000).data
    assert b"changed again" in data
    assert set(change.files) >= {"src/app.py", "README.md"}
    assert not (tmp_path / "sprung").exists()
    git(repo, "diff", check=False)
    assert (tmp_path / "sprung").exists(), "the trap doesn't work, so it proves nothing"


def test_no_attribute_of_the_code_folds_or_hides_it(repo: Path) -> None:
    """Also in a git that takes attributes from the working tree (before 2.43)."""
    code = "# $Id: {} $\nevil()\n"
    (repo / ".gitattributes").write_text("*.py ident -diff\n*.md ident\n")
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* ident\n")
    for name in ("src/app.py", "README.md"):
        (repo / name).write_text(code.format(""))
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "keywords")
    for name in ("src/app.py", "README.md"):
        (repo / name).write_text(code.format("*/ steal(); /*"))
    repository = Repository(repo)
    change = repository.change("HEAD")
    data = repository.diff(change, [], 10_000).data
    assert set(change.files) == {"src/app.py", "README.md"}
    assert data.count(b"+# $Id: */ steal(); /* $") == 2
    assert change.untracked == ()


def test_a_filter_that_cannot_be_switched_off_stops_git(repo: Path) -> None:
    with (repo / ".git" / "config").open("a") as config:
        config.write('[filter "a=b"]\n\tclean = touch /tmp/never\n')
    with pytest.raises(GitError, match="can't be switched off"):
        Repository(repo).change("auto")


def test_the_diff_is_bounded(repo: Path) -> None:
    (repo / "src" / "app.py").write_text("line\n" * 100_000)
    repository = Repository(repo)
    output = repository.diff(repository.change("HEAD"), [], 5000)
    assert len(output.data) == 5000
    assert "more than 5000 bytes" in output.ended


def test_a_work_tree_elsewhere_is_not_followed(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret")
    git(repo, "config", "core.worktree", str(tmp_path / "elsewhere"))
    change = Repository(repo).change("HEAD")
    assert change.files == ("src/app.py",)
    assert "secret" not in change.untracked


def test_the_history_is_read_and_runs_nothing_either(repo: Path, tmp_path: Path) -> None:
    first = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-q", "-a", "-m", "another change")
    marker = tmp_path / "ran"
    for name in ("gpg.program", "log.showSignature", "diff.external"):
        value = "true" if name.endswith("Signature") else f"touch {marker}; false"
        git(repo, "config", name, value)
    repository = Repository(repo)
    log = repository.log(1, [], 10_000).data.decode()
    assert "another change" in log
    assert "M\tsrc/app.py" in log
    assert not repository.log(1, ["README.md"], 10_000).data.decode().count("another change")
    diff = repository.diff_range(first, "HEAD", ["src/app.py"], 10_000).data
    assert b"+    return a - b" in diff
    assert not repository.diff_range("HEAD", "HEAD", [], 10_000).data
    for wrong in ("nothing", "--output=x", "HEAD:src"):
        with pytest.raises(GitError, match="no commit"):
            repository.diff_range(wrong, "HEAD", [], 10_000)
    assert not marker.exists()


def test_an_attribute_of_the_code_hides_nothing_of_its_diff(repo: Path) -> None:
    (repo / ".gitattributes").write_text("*.py -diff\n*.js binary\n")
    for name in ("evil.py", "evil.js"):
        (repo / name).write_text("evil()\n")
    git(repo, "add", "-A")
    repository = Repository(repo)
    shown = repository.diff(repository.change("HEAD"), [], 100_000).data
    assert shown.count(b"\n+evil()") == 2


async def test_a_change_that_was_given_says_of_which_files_its_cut_diff_shows_not_all(
    repo: Path,
) -> None:
    (repo / "b").symlink_to("src")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "a link")
    (repo / "b").unlink()
    # Two parts of the diff, and one file.
    (repo / "b").write_text("b = 1\n")
    (repo / "z.py").write_text("z = 1\n" * 2_000)
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "more")
    for most, left in ((4_000, ("z.py",)), (250, ("b", "z.py")), (1 << 20, ())):
        made = await workspace_git.change(repo, "HEAD~1", most, paths=())
        given = msgspec.json.decode(msgspec.json.encode(made), type=GivenChange)
        change = given.change("")
        assert not_shown(given.diff(change, [], 1 << 20), given.diff_names(change, [])) == left
