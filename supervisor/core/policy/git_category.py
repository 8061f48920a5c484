"""Git rules as a category: containment, width, examples and candidates.

How a rule is matched is known by `git_rules`.
"""

from collections.abc import Hashable, Iterator, Sequence

from supervisor.core.actions import Git
from supervisor.core.policy import git_rules
from supervisor.core.policy.category import (
    Candidate,
    Compiled,
    ProtectedBy,
    Remark,
    RuleCategory,
    like,
)
from supervisor.core.policy.git_refs import (
    REACHES,
    READS,
    harmless,
    parse_command,
    refs_of,
    special_flags,
)
from supervisor.core.policy.git_rules import GitPattern
from supervisor.core.text.words import is_star, quoted, star_within

_NAMESPACES = ("refs/", "tags/", "heads/", "remotes/", "+")


# -- containment -----------------------------------------------------------------------------------


def _contains(outer: Compiled, inner: Compiled, _: ProtectedBy) -> bool:
    wide: GitPattern = outer.pattern
    narrow: GitPattern = inner.pattern
    if wide == narrow and outer.is_allow == inner.is_allow:
        return True
    special, mine = _special(wide), _special(narrow)
    if outer.is_allow:
        # The rest of a bare rule's scope has no name here.
        return (
            special == mine
            and not (wide.is_bare or narrow.is_bare)
            and _subjects_in(wide.words, narrow.words, mine)
        )
    if not special <= mine or (narrow.is_bare and not wide.is_bare):
        return False
    if (
        not inner.is_allow
        and git_rules.names_a_branch(narrow)
        and not git_rules.names_a_branch(wide)
    ):
        return False
    return wide.is_bare or _called_in(wide.words, narrow.words, is_allow=inner.is_allow)


def _special(pattern: GitPattern) -> frozenset[str]:
    """Return the options without which a rule says nothing; where a wildcard leaves the operation
    open, those of any."""
    words = pattern.words
    return pattern.options - harmless(
        "push" if len(words) == 1 and words[0] not in git_rules.OPERATIONS else words[0]
    )


def _subjects_in(wide: Sequence[str], narrow: Sequence[str], options: frozenset[str]) -> bool:
    """For two allow rules: an action has several subjects, and a rule names one."""
    if len(wide) == len(narrow):
        return all(map(_word_in, wide, narrow))
    if len(narrow) != 3:
        return False
    operation, remote, ref = narrow
    if len(wide) == 1:
        # The bare branch is a subject of a plain push only, and not where it is the name of an
        # operation.
        is_plain = (
            operation == "push" and not options and ":" not in ref and ref not in ("HEAD", "@")
        )
        return (
            is_plain
            and "/" in ref.partition("*")[0]
            and not ref.startswith(_NAMESPACES)
            and _word_in(wide[0], ref)
        )
    if operation not in REACHES or not _word_in(wide[0], operation):
        return False
    return _word_in(wide[1], ref) or (operation in READS and _word_in(wide[1], remote))


def _word_in(wide: str, narrow: str) -> bool:
    """Return whether a word of a pattern covers all that another one covers: never into a mapping
    or another namespace."""
    if wide == narrow:
        return True
    if "*" not in narrow:
        return git_rules.word_covers(wide, narrow)
    if ":" in wide + narrow or narrow.startswith(_NAMESPACES) or wide.startswith(_NAMESPACES):
        return False
    return star_within(wide, narrow)


def _called_in(wide: Sequence[str], narrow: Sequence[str], *, is_allow: bool) -> bool:
    """For a deny or ask rule: it looks at a ref's name, however that is spelled. `is_allow`: the
    inner rule only covers."""
    first = star_within(wide[0], narrow[0])
    if len(wide) == 1:
        # The rule is about an operation, or about a branch.
        is_branch = (
            len(narrow) == 3
            and narrow[0] == "push"
            and not is_star(narrow[2])
            and star_within(wide[0], narrow[2])
        )
        return is_branch or first
    if not first or len(wide) > len(narrow):
        return False
    if len(wide) == len(narrow):
        return all(map(star_within, wide[1:], narrow[1:]))
    if len(wide) != 2 or len(narrow) != 3:
        return False
    is_ref = is_star(wide[1]) or (not is_star(narrow[2]) and star_within(wide[1], narrow[2]))
    return is_ref or (is_allow and narrow[0] in REACHES and star_within(wide[1], narrow[1]))


def _key(pattern: GitPattern) -> Hashable:
    return _start_of(pattern.words[-1])


def _keys_above(pattern: GitPattern) -> Iterator[Hashable]:
    yield from (start for word in ("", *pattern.words) for start in _starts_of(word))


def _start_of(word: str) -> str:
    """A word without a wildcard, or the folders that one with a wildcard spells out."""
    literal, star, _ = word.partition("*")
    return literal[: literal.rfind("/") + 1] if star else literal


def _starts_of(word: str) -> Iterator[str]:
    literal, star, _ = word.partition("*")
    if not star:
        yield literal
    yield from (literal[: at + 1] for at, char in enumerate(literal) if char == "/")
    yield ""


# -- in words, and from an action ------------------------------------------------------------------


def _wide(pattern: GitPattern) -> Remark | None:
    if pattern.is_bare:
        return Remark(
            "covers every push, fetch and pull, the main branch included",
            "name branches, e.g. `git(bot/*)`",
        )
    return None


def _width(pattern: GitPattern) -> str:
    if pattern.is_bare:
        return "every operation of git that reaches a remote"
    words = " ".join([*pattern.words, *sorted(pattern.options)])
    if len(pattern.words) == 1:
        return f"plain pushes to {like('branch', words)}"
    return f"whatever of git fits {words}" if "*" in words else f"exactly git {words}"


def _example(example: str) -> Git:
    return parse_command(_command(example))


def _command(example: str) -> str:
    """`git push origin x`, `push origin x`, `push x` as a rule names it, or a bare branch."""
    words = example.split()
    if words[:1] == ["git"]:
        return example
    if (
        len(words) == 2
        and words[0] == "push"
        and words[1] != "origin"
        and not words[1].startswith("-")
    ):
        return f"git push origin {words[1]}"
    return (
        f"git push origin {example}"
        if len(words) == 1 and ("/" in example or example in ("main", "master"))
        else f"git {example}"
    )


def _candidates(action: Git, _: str) -> Iterator[Candidate]:
    refs = refs_of(action)
    flags = special_flags(action)
    options = "".join(f" {flag}" for flag in sorted(flags))
    remote = f" {action.remote}" if action.remote else ""
    if not refs:
        words = "".join(
            f" {quoted(word)}"
            for word in ([action.remote] if action.remote else []) + [*action.refspecs]
        )
        yield Candidate(
            "exact",
            f"git({action.operation}{options}{words})",
            default=True,
            explains="this operation",
        )
    if len(refs) != 1:
        return
    ref = refs[0]
    if action.operation == "push" and ref.kind == "branch" and not flags:
        yield Candidate(
            "narrow", f"git({ref.name})", default=True, explains="plain pushes to this branch"
        )
        yield Candidate(
            "exact",
            f"git(push{remote} {ref.text})",
            default=False,
            explains="plain pushes to this branch there",
        )
        prefix = ref.name.rpartition("/")[0]
        if prefix:
            yield Candidate(
                "broad",
                f"git({prefix}/*)",
                default=False,
                explains=f"plain pushes to branches below {prefix}/",
            )
        return
    text = f" {ref.text}" if ref.text else ""
    yield Candidate(
        "exact",
        f"git({action.operation}{options}{remote}{text})",
        default=True,
        explains="exactly this",
    )


CATEGORY = RuleCategory(
    check=git_rules.check_pattern,
    compile=git_rules.compile_pattern,
    judge=lambda rules, _: git_rules.GitJudge(rules),
    contains=_contains,
    key=_key,
    keys_above=_keys_above,
    wide=_wide,
    width=_width,
    example=_example,
    candidates=_candidates,
)
