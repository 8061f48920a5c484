"""Maintenance jobs: the task to do on a folder, and its result. Pure."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from supervisor.core.text.display import visible
from supervisor.errors import UserError

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
_Glob = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
_Count = Annotated[int, msgspec.Meta(ge=1)]
OURS = "Gatehouse <gatehouse@localhost>"
UPDATES_PROMPT, DEFAULT_MIN_AGE = "Update dependencies", "3d"
MOST_NAMED, MOST_GLOBS, MOST_UPDATES_SAID = 20, 50, 5
MOST_SHOWN_CHARS = 300
MOST_TITLE_CHARS = 72
# Of the paths that a proof names; the rest is counted.
MOST_KEPT = 100
_AUTHOR = re.compile(r"[^<>\x00-\x1f\x7f]*[^<>\x00-\x20\x7f] <[^<>\s\x00-\x1f\x7f]+>\Z")
Tests = Literal["none", "passed", "failed", "not run"]


class Updates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dependencies a job updates: of these managers, and these packages; all where none is
    named. Releases younger than `min_age_s` wait."""

    managers: Annotated[tuple[str, ...], msgspec.Meta(max_length=20)] = ()
    names: Annotated[tuple[_Glob, ...], msgspec.Meta(max_length=100)] = ()
    min_age_s: Annotated[float, msgspec.Meta(ge=0)] = 3 * 86_400.0


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """A version in a lock file that a job changed. `before` is empty for a new package, `after`
    for a removed one; they are the same if that version has another file or address now.
    `published_at` is in seconds since the epoch; `link` where its changes may be read."""

    name: str
    before: str = ""
    after: str = ""
    published_at: float | None = None
    link: str = ""

    @property
    def is_update(self) -> bool:
        """Return whether one version takes another's place."""
        return bool(self.before and self.after and self.before != self.after)


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task. `name`: its name in jobs.yaml, "" if it was started by hand. `scope`: globs of the
    paths it may change. `tests`: a command that is run on the result. `branch`: the result is one
    commit on a branch, and changed files aren't asked about; `branch_name` is that branch's, "" for
    one of this session's own. `tools`: what its agent has of a `.reviewerc`'s categories, empty
    for all that maintains. `max_files` and `max_diff_lines`: more is refused. `author` (`Name
    <mail>`, "" for Gatehouse) makes the commit, and signs it off with `signed_off`. `updates`: the
    task is to update dependencies, and the prompt only its title. `title` is the first line of the
    commit, "" for that of the prompt."""

    prompt: _Text
    title: Annotated[str, msgspec.Meta(max_length=200)] = ""
    name: Annotated[str, msgspec.Meta(max_length=64)] = ""
    scope: Annotated[tuple[_Glob, ...], msgspec.Meta(max_length=MOST_GLOBS)] = ()
    tools: Annotated[tuple[_Glob, ...], msgspec.Meta(max_length=50)] = ()
    tests: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    branch: bool = False
    branch_name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    max_files: _Count | None = None
    max_diff_lines: _Count | None = None
    author: Annotated[str, msgspec.Meta(max_length=500)] = ""
    signed_off: bool = False
    updates: Updates | None = None


class Changed(NamedTuple):
    """A path that a job changed. The text stands for exactly the path's bytes, with surrogate
    escapes. `odd`: what it was or is, if not a plain file (`a symlink`); `lines`: how many were
    added and removed."""

    path: str
    odd: str = ""
    lines: int = 0

    @property
    def shown(self) -> str:
        """Return the path for a person, in one line."""
        name = self.path.encode(errors="surrogateescape").decode(errors="backslashreplace")
        return visible(name[:MOST_SHOWN_CHARS], one_line=True)


class ScopeProof(msgspec.Struct, frozen=True, kw_only=True):
    """What a job changed: the number of paths that it may have changed, and those outside its
    scope. `blocked`: paths that no job changes, each with the reason. `more`: paths of either kind
    that aren't named. `too_many`: the limit that the whole is over. `lines` were added and
    removed."""

    inside: int = 0
    outside: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    more: int = 0
    too_many: str = ""
    lines: int = 0

    @property
    def files(self) -> int:
        """Return how many paths the job changed."""
        return self.inside + len(self.outside) + len(self.blocked) + self.more


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job. `refused`: why nothing may come of it, with the paths. `tests_why`: why
    the tests failed, or weren't run; `tests_output`: the end of what they printed. `branch` and
    `commit` are the commit's, if there was something to commit; `closed`: what happened to it,
    empty while it waits to be taken. `updated`: the versions in the commit's lock files that are
    other ones than before."""

    proof: ScopeProof = ScopeProof()
    refused: str = ""
    tests: Tests = "none"
    tests_why: str = ""
    tests_output: str = ""
    branch: str = ""
    commit: str = ""
    closed: str = ""
    updated: tuple[Updated, ...] = ()

    @property
    def waits(self) -> bool:
        """Return whether a branch waits to be taken or dropped."""
        return bool(self.branch) and not self.closed

    @property
    def is_empty(self) -> bool:
        """Return whether there was nothing to change."""
        return not self.proof.files


def author_of(job: Job) -> str:
    """Return who makes the commit. `UserError` if it isn't one name and one address."""
    if job.author and not _AUTHOR.match(job.author):
        raise UserError("the job's author isn't `Name <mail>`", "write `Jo Doe <jo@example.org>`")
    return job.author or OURS


def job_prompt(job: Job) -> str:
    """Return the prompt, with the facts about its task that an agent needs."""
    scope = f"Change only files within: {' '.join(job.scope)}" if job.scope else ""
    parts = (
        job.prompt.strip(),
        "Work on the files of this folder, which is a private copy. Don't commit, and don't push:"
        " what you change is reviewed by a person afterwards. Where nothing has to be changed,"
        " change nothing.",
        scope,
    )
    return "\n\n".join(part for part in parts if part)


def job_title(job: Job) -> str:
    """Return what a commit of it is called: its title, or the beginning of the prompt."""
    text = (job.title or job.prompt).strip().split("\n")[0]
    cut = text[:MOST_TITLE_CHARS]
    whole = cut.rpartition(" ")[0] if len(text) > len(cut) else ""
    return visible(whole or cut, one_line=True)


def result_words(job: Job, result: JobResult) -> str:
    """Return a job's result in one line, without its cost."""
    if result.is_empty and not result.refused:
        return "nothing to change"
    parts = [f"refused: {result.refused}" if result.refused else scope_words(job, result.proof)]
    if new := [one for one in result.updated if one.is_update]:
        named = [f"{one.name} {one.before} -> {one.after}" for one in new[:MOST_UPDATES_SAID]]
        more = f" and {len(new) - len(named)} more" if len(new) > len(named) else ""
        parts.insert(0, visible(", ".join(named) + more, one_line=True))
    if result.tests != "none":
        why = f" ({result.tests_why})" if result.tests_why else ""
        parts.append(f"tests {result.tests}{why}")
    if result.branch:
        parts.append(f"committed on {result.branch}")
    return "; ".join(parts)


def scope_words(job: Job, proof: ScopeProof) -> str:
    """Return the proof in words: `3 files, all within docs/**`."""
    files = f"{proof.files:,} file{'' if proof.files == 1 else 's'}"
    if not job.scope:
        return f"{files}, no scope was given"
    out = proof.files - proof.inside
    return f"{files}, {f'{out:,} of them outside' if out else 'all within'} {' '.join(job.scope)}"


def refusal(job: Job, proof: ScopeProof) -> str:
    """Return why nothing may come of a job, with the paths; "" if all that it changed is its to
    change."""
    parts = []
    if proof.outside:
        parts.append(f"outside {' '.join(job.scope) or 'the workspace'}: {_named(proof.outside)}")
    if proof.blocked:
        parts.append(f"not a job's to change: {_named(proof.blocked)}")
    if proof.more:
        parts.append(f"{proof.more:,} more paths")
    return "; ".join([*parts, proof.too_many] if proof.too_many else parts)


def _named(paths: Sequence[str]) -> str:
    left = len(paths) - MOST_NAMED
    return ", ".join(paths[:MOST_NAMED]) + (f" and {left} more" if left > 0 else "")
