"""What a job may change, and the proof that it changed nothing else."""

from collections.abc import Callable

import pytest

from supervisor.core.actions import FileChange, FileStep
from supervisor.core.files.write_scope import WriteScope, changed, is_leftover, judge
from supervisor.core.jobs import MOST_KEPT, Changed, Job, ScopeProof
from supervisor.core.policy.file_rules import OF_REPOSITORY
from supervisor.errors import UserError
from tests.tables import each_row


@each_row(
    ("scope", "path", "is_inside"),
    [
        ((), "anything/at.all", True),
        (("docs/**",), "docs/a/b.md", True),
        (("docs/**",), "docs", True),
        (("docs/**",), "src/docs/a.md", False),
        (("docs/**",), "Docs/a.md", False),
        (("docs/**", "README.md"), "README.md", True),
        (("docs/**", "!docs/old/**"), "docs/old/a.md", False),
        (("docs/**", "!docs/old/**"), "docs/OLD/a.md", False),
        (("!docs/**",), "src/a.py", True),
        (("!docs/**",), "docs/a.md", False),
        (("docs/**",), "docs/../src/a.py", False),
        (("docs/**",), "../docs/a.md", False),
        (("docs/**",), "docs/a\nb", False),
    ],
)
def test_a_path_is_within_a_scope_or_not(
    scope: tuple[str, ...], path: str, is_inside: bool
) -> None:
    assert WriteScope(scope).has(path) is is_inside


def test_a_change_is_covered_with_all_that_it_is_about() -> None:
    scope = WriteScope(("docs/**",))

    def change(**fields: object) -> FileChange:
        return FileChange(**{"operation": "write", "path": "docs/a"} | fields)  # type: ignore[arg-type]

    assert scope.covers(change())
    assert scope.covers(change(operation="rename", to="docs/b"))
    assert not scope.covers(change(operation="rename", to="src/b"))
    assert not scope.covers(change(operation="rename", path="src/a", to="docs/b"))
    assert not scope.covers(change(path_b64="ZG9jcy//"))
    step = FileStep(operation="write", path="src/x")
    assert not scope.covers(change(operation="swap", steps=(step,)))


def job(*scope: str, **fields: object) -> Job:
    return Job(prompt="x", scope=scope, **fields)  # type: ignore[arg-type]


def judged(*paths: str, scope: tuple[str, ...] = ("docs/**",)) -> ScopeProof:
    return judge(job(*scope), [Changed(path) for path in paths])


def test_each_path_is_inside_outside_or_blocked() -> None:
    assert judged() == ScopeProof()
    assert judged("docs/a", "docs/a", "docs/b") == ScopeProof(inside=2)
    assert judged("src/b", "docs/a", "src/a") == ScopeProof(inside=1, outside=("src/a", "src/b"))
    odd = judge(job(), [Changed("a", "a submodule"), Changed("b\n\udcff")])
    assert odd == ScopeProof(inside=1, blocked=("a (a submodule)",))
    assert judge(job("**"), [Changed("b\udcff")]).outside == ("b\\xff",)


BLOCKED = """.github/workflows/ci.yml .github/actions/x/action.yml .gitlab-ci.yml Jenkinsfile
.circleci/config.yml azure-pipelines.yml bitbucket-pipelines.yml .reviewerc .reviewerc.yaml
.code-refinery.yml CLAUDE.md AGENTS.md .claude/settings.json .mcp.json .gitmodules .gitattributes
.git/config"""
SPELLED = [
    str.upper,
    str.title,
    "sub/folder/{}".format,
    lambda path: path.replace("g", "\uff47").replace("e", "\uff25"),  # full width
    lambda path: path.replace("a", "a\u200c"),  # HFS+ ignores it
    lambda path: path.replace("/", " /") + ". .",  # NTFS drops blanks and dots at the end
    lambda path: "docs\\" + path.replace("/", "\\"),  # parts names on Windows
    "{}::$INDEX_ALLOCATION".format,
    "{}:x".format,
    "C:{}".format,
]


@each_row(("path", "spelled"), [(path, one) for path in BLOCKED.split() for one in SPELLED])
def test_no_scope_covers_a_protected_name_in_any_spelling(
    path: str, spelled: Callable[[str], str]
) -> None:
    for scope in ((), ("**",), (path,), ("docs/**",)):
        for name in (path, spelled(path)):
            proof = judged(name, scope=scope)
            assert (proof.inside, proof.outside) == (0, ()), (scope, name)
            assert len(proof.blocked) == 1


@each_row(
    "path",
    [
        f"docs/{name}"
        for name in (
            "GITMOD~1",
            "GIT~2",
            "gi7eba~1",
            "MCP~1.JSO",
            "a/b~3/c",
            "MCP~1.JSO .",
            "a~1:x",
        )
    ],
)
def test_no_job_writes_a_short_name_of_windows(path: str) -> None:
    assert judged(path).blocked == (f"{path} (a short name, which may stand for another file)",)


@each_row(
    "path",
    [
        f"docs/{name}"
        for name in (
            "workflows/a.md",
            "claude.py",
            "git.md",
            "a~b",
            "a.~1~",
            "note~1~",
            "x:y",
            "a\\b",
        )
    ],
)
def test_what_only_resembles_one_is_inside(path: str) -> None:
    assert judged(path) == ScopeProof(inside=1)


def test_the_limits_are_of_all_that_changed() -> None:
    changes = [Changed("docs/a", lines=3), Changed("docs/b", lines=4), Changed("src/c")]
    assert judge(job(max_files=3, max_diff_lines=7), changes).too_many == ""
    assert judge(job(max_diff_lines=6), changes).too_many == (
        "7 changed lines, and at most 6 are let through"
    )
    proof = judge(job(max_files=2), changes)
    assert proof.too_many == "3 files, and at most 2 are let through"
    assert (proof.lines, proof.files) == (7, 3)


def test_a_proof_names_some_and_counts_all() -> None:
    several = MOST_KEPT + 50
    paths = [
        *(f"src/{number:04}" for number in range(several)),
        *(f"{n}/.mcp.json" for n in range(3)),
    ]
    proof = judged(*paths, "docs/a")
    assert (len(proof.outside), len(proof.blocked), proof.more) == (MOST_KEPT, 3, 50)
    assert (proof.inside, proof.files) == (1, several + 4)


@each_row(
    ("fields", "expected"),
    [
        ({"operation": "write"}, [("a", "")]),
        ({"operation": "rename", "to": "b"}, [("a", ""), ("b", "")]),
        ({"operation": "rename", "to": "b", "path_b64": "YS//"}, [("a/\udcff", ""), ("b", "")]),
        ({"operation": "symlink", "link_target": "b"}, [("a", "a symlink")]),
        ({"operation": "delete", "before": "symlink:1"}, [("a", "a symlink")]),
        ({"operation": "chmod", "mode": 0o755}, [("a", "a new executable")]),
        (
            {"operation": "write", "hazards": ("new-executable", "wider")},
            [("a", "a new executable")],
        ),
        ({"operation": "write", "mode": 0o4644}, [("a", "set-uid")]),
        ({"operation": "write", "hazards": ("wider", "conflict", "secret")}, [("a", "")]),
        ({"operation": "write", "repositories": ("a",)}, [("a", OF_REPOSITORY)]),
        (
            {
                "operation": "swap",
                "steps": (FileStep(operation="delete", path="a/b", before="symlink:1"),),
            },
            [("a", "a symlink"), ("a/b", "a symlink")],
        ),
    ],
)
def test_a_changed_file_is_judged_by_each_of_its_paths(
    fields: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    action = FileChange(**{"path": "a"} | fields)  # type: ignore[arg-type]
    assert changed(action) == [Changed(*one) for one in expected]


def test_what_interpreters_and_test_runners_leave() -> None:
    for path in (
        "__pycache__/a.pyc",
        "src/.pytest_cache/v/x",
        "a.pyo",
        ".coverage",
        "x/htmlcov/i.html",
    ):
        assert is_leftover(path), path
    for path in ("src/pycache/a.py", "docs/coverage.md", "a.pyc.md", "__pycache__.py"):
        assert not is_leftover(path), path


@pytest.mark.parametrize("word", ["/etc/**", "../x", "a//b", "a/./b", "", "a/***", "!/x", "a/[b"])
def test_a_scope_that_would_surprise_is_refused(word: str) -> None:
    with pytest.raises(UserError):
        WriteScope((word,))
