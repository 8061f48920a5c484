"""What a job may change, and the proof that it changed nothing else."""

import pytest

from supervisor.core.actions import FileChange, FileStep
from supervisor.core.files.write_scope import WriteScope
from supervisor.core.jobs import MOST_NAMED, ScopeProof, scope_words
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


def written(*paths: str) -> list[FileChange]:
    return [FileChange(operation="write", path=path) for path in paths]


def test_the_proof_is_of_all_that_a_change_is_about() -> None:
    scope = WriteScope(("docs/*",))
    steps = (
        FileStep(operation="mkdir", path="docs/a"),
        FileStep(operation="write", path="docs/a/x.py"),
    )
    swap = FileChange(operation="swap", path="docs/a", steps=steps)
    odd = FileChange(operation="write", path="docs/b", path_b64="ZG9jcy//")
    moved = FileChange(operation="rename", path="docs/c", to="src/c")
    proof = scope.proof([swap, odd, moved])
    assert proof == ScopeProof(inside=2, outside=("docs/a/x.py", "docs/b", "src/c"))


def test_the_proof_counts_and_names() -> None:
    scope = WriteScope(("docs/**",))
    assert scope.proof([]) == ScopeProof()
    assert scope.proof(written("docs/a", "docs/a", "docs/b")) == ScopeProof(inside=2)
    proof = scope.proof(written("src/b", "docs/a", "src/a"))
    assert proof == ScopeProof(inside=1, outside=("src/a", "src/b"))
    assert scope_words((), ScopeProof(inside=2)) == "2 files, no scope was given"
    assert scope_words(scope.words, ScopeProof(inside=1)) == "1 file, all within docs/**"
    assert scope_words(scope.words, proof) == ("3 files, 2 of them outside docs/**: src/a, src/b")
    many = ScopeProof(outside=tuple(f"x{number}" for number in range(MOST_NAMED + 3)))
    assert scope_words(scope.words, many).endswith("x19 and 3 more")


@pytest.mark.parametrize("word", ["/etc/**", "../x", "a//b", "a/./b", "", "a/***", "!/x", "a/[b"])
def test_a_scope_that_would_surprise_is_refused(word: str) -> None:
    with pytest.raises(UserError):
        WriteScope((word,))
