"""Maintenance jobs: the task to do on a folder, and its result. Pure."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
_Glob = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
MOST_NAMED = 20
Tests = Literal["none", "passed", "failed", "not run"]


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task. `name`: its name in jobs.yaml, "" if it was started by hand. `scope`: globs of the
    paths it may change. `tests`: a command that is run on the result. `branch`: the result is
    commits on a branch of the copy, and changed files aren't asked about."""

    prompt: _Text
    name: Annotated[str, msgspec.Meta(max_length=64)] = ""
    scope: Annotated[tuple[_Glob, ...], msgspec.Meta(max_length=50)] = ()
    tests: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    branch: bool = False


class ScopeProof(msgspec.Struct, frozen=True, kw_only=True):
    """What a job changed: the number of paths within its scope, and the paths outside."""

    inside: int = 0
    outside: tuple[str, ...] = ()


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job. `tests_why`: why the tests failed, or weren't run. `branch` is the
    commit's, if there was something to commit; `closed`: what happened to it, empty while it waits
    to be taken."""

    proof: ScopeProof = ScopeProof()
    tests: Tests = "none"
    tests_why: str = ""
    branch: str = ""
    closed: str = ""

    @property
    def waits(self) -> bool:
        """Return whether a branch waits to be taken or dropped."""
        return bool(self.branch) and not self.closed

    @property
    def is_empty(self) -> bool:
        """Return whether there was nothing to change."""
        return not self.proof.inside and not self.proof.outside


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


def result_words(job: Job, result: JobResult) -> str:
    """Return a job's result in one line, without its cost."""
    if result.is_empty:
        return "nothing to change"
    parts = [scope_words(job.scope, result.proof)]
    if result.tests != "none":
        why = f" ({result.tests_why})" if result.tests_why else ""
        parts.append(f"tests {result.tests}{why}")
    if result.branch:
        parts.append(f"committed on {result.branch}")
    return "; ".join(parts)


def scope_words(words: Sequence[str], proof: ScopeProof) -> str:
    """Return the proof in words: `3 files, all within docs/**`."""
    number = proof.inside + len(proof.outside)
    files = f"{number} file{'' if number == 1 else 's'}"
    if not words:
        return f"{files}, no scope was given"
    if not proof.outside:
        return f"{files}, all within {' '.join(words)}"
    named = ", ".join(proof.outside[:MOST_NAMED])
    more = f" and {len(proof.outside) - MOST_NAMED} more" if len(proof.outside) > MOST_NAMED else ""
    return f"{files}, {len(proof.outside)} of them outside {' '.join(words)}: {named}{more}"
