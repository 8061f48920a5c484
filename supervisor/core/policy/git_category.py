"""Git rules as a category: containment, width, examples and candidates.

`git_rules` knows how a rule is matched.
"""

from collections.abc import Hashable, Iterator, Sequence

from msgspec.structs import replace

from supervisor.core.actions import Git
from supervisor.core.policy import git_rules
from supervisor.core.policy.category import (
    FAR,
    MOST_PARTS,
    ONE_WILDCARD,
    SPELLED_OUT,
    AnyRule,
    Candidate,
    Option,
    ProtectedBy,
    Reading,
    Remark,
    RuleCategory,
    RuleLook,
    Topic,
    exact,
    like,
    look_at,
    miss,
)
from supervisor.core.policy.git_refs import (
    REACHES,
    READS,
    Ref,
    harmless,
    joined_tags,
    parse_command,
    refs_of,
    special_flags,
)
from supervisor.core.policy.git_rules import (
    GitJudge,
    GitPattern,
    SoughtRef,
    options_agree,
    word_covers,
)
from supervisor.core.text.words import fits, is_star, quoted, star_within
from supervisor.core.verdicts import CompiledRule, Context, Forced, Rule, Verdict

# Branches that others build on: no number of approvals makes a push there routine.
_SHARED_BRANCHES = frozenset({"main", "master", "trunk", "develop", "production"})
_KINDS = {
    "mapping": "a mapping",
    "tag": "a tag",
    "ref": "not a branch",
    "unknown": "which branch it is isn't said",
}
_NAMESPACES = ("refs/", "tags/", "heads/", "remotes/", "+")


# -- containment -----------------------------------------------------------------------------------


def _contains(outer: AnyRule, inner: AnyRule, _: ProtectedBy) -> bool:
    wide: GitPattern = outer.pattern
    narrow: GitPattern = inner.pattern
    if wide == narrow and outer.is_broad == inner.is_broad:
        return True
    special, mine = _special(wide), _special(narrow)
    if not outer.is_broad:
        # The rest of a bare rule's scope has no name here.
        return (
            special == mine
            and not (wide.is_bare or narrow.is_bare)
            and _subjects_in(wide.words, narrow.words, mine)
        )
    if not special <= mine or (narrow.is_bare and not wide.is_bare):
        return False
    if inner.is_broad and git_rules.names_a_branch(narrow) and not git_rules.names_a_branch(wide):
        return False
    return wide.is_bare or _called_in(wide.words, narrow.words, is_allow=not inner.is_broad)


def _special(pattern: GitPattern) -> frozenset[str]:
    """Return the options without which a rule says nothing. If a wildcard leaves the operation
    open, return those of all operations."""
    words = pattern.words
    return pattern.options - harmless(
        "push" if len(words) == 1 and words[0] not in git_rules.OPERATIONS else words[0]
    )


def _subjects_in(wide: Sequence[str], narrow: Sequence[str], options: frozenset[str]) -> bool:
    """Return whether `outer` covers `inner`, for two allow rules: an action has several subjects,
    and a rule names one."""
    if len(wide) == len(narrow):
        return all(map(_word_in, wide, narrow))
    if len(narrow) != 3:
        return False
    operation, remote, ref = narrow
    if len(wide) == 1:
        # The bare branch is a subject only of a plain push, and not if it is also the name of an
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
    """Return whether a pattern's word covers everything that another word covers. It never reaches
    into a mapping or another namespace."""
    if wide == narrow:
        return True
    if "*" not in narrow:
        return word_covers(wide, narrow)
    if ":" in wide + narrow or narrow.startswith(_NAMESPACES) or wide.startswith(_NAMESPACES):
        return False
    return star_within(wide, narrow)


def _called_in(wide: Sequence[str], narrow: Sequence[str], *, is_allow: bool) -> bool:
    """Return whether a deny or ask rule covers another: it looks at a ref's name, however that is
    spelled. `is_allow`: the inner rule is an allow rule."""
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
    """Return a word without a wildcard, or the folders that a word with a wildcard spells out."""
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
    """Return the command of an example: `git push origin x`, `push origin x`, `push x` as a rule
    names it, or a bare branch."""
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


def _options(action: Git) -> Iterator[Option]:
    refs = refs_of(action)
    if action.operation in READS:
        yield from exact(_candidates(action, ""))
    elif action.operation == "push" and len(refs) == 1:
        ref = refs[0]
        if ref.kind != "branch" or ref.name in _SHARED_BRANCHES or not action.remote:
            return
        yield Option(f"git(push {action.remote} {ref.name})", SPELLED_OUT, 2)
        folder = ref.name.rpartition("/")[0]
        if folder:
            yield Option(f"git(push {action.remote} {folder}/*)", ONE_WILDCARD, 2, ref.name)


# -- explained -------------------------------------------------------------------------------------


def _read(judge: GitJudge, _: Sequence[Rule], action: Git, context: Context) -> Reading:
    seen = judge.canonical(action)
    if isinstance(seen, Verdict):
        parsed = git_rules.parsed_action(action)
        return Reading() if parsed is None else Reading(_facts(parsed, context))
    unread, cases = seen.unread, seen.sought
    if unread is not None:
        forced = (Forced("ask", f"{unread}, so no rule may allow it"),)
        topic = Topic("command", seen.action.command or seen.action.operation, forced=forced)
        return Reading((), (topic,), lambda rule, _: _look_roughly(rule, unread, cases))

    def forced_of(case: SoughtRef) -> tuple[Forced, ...]:
        return tuple(judge.forced(case.action, case.ref, case.flags, context))

    topics = [
        Topic(
            "ref" if case.ref else "operation",
            _name(case),
            _notes(case.ref),
            forced_of(case),
            alone=_alone(case, at),
        )
        for at, case in enumerate(cases[:MOST_PARTS])
    ]

    def look(rule: Rule, at: int) -> RuleLook:
        how = f"`{rule.pattern}` covers `{topics[at].text}`"
        return look_at(CompiledRule(rule, git_rules.compile_pattern), cases[at], how, _miss)

    further = [one for case in cases[MOST_PARTS:] for one in forced_of(case)]
    return Reading(_facts(seen.action, context), topics, look, further, len(cases) - len(topics))


def _look_roughly(rule: Rule, unread: str, cases: Sequence[SoughtRef]) -> RuleLook:
    """Return what a rule says about a command that can't be read and may hold any of these."""
    if rule.effect != "deny":
        return miss(f"{unread}: only deny rules are asked", FAR)
    one = CompiledRule(rule, git_rules.compile_pattern)
    found = next((case for case in cases if one.matches(case)), None)
    if found is None:
        return miss("nothing that the text may hold is what it is about", FAR)
    return RuleLook(True, f"the text may hold `{_name(found)}`")


def _alone(case: SoughtRef, at: int) -> Git:
    """Return one ref of an operation as an operation of its own, or all the words of an operation
    that takes no refs."""
    if case.ref is None:
        return replace(case.action, command=None)
    refspecs = joined_tags(case.action.refspecs)[at : at + 1]
    return replace(case.action, refspecs=tuple(refspecs), command=None)


def _name(case: SoughtRef) -> str:
    words = [case.action.operation, case.action.remote or ""]
    words += case.action.refspecs if case.ref is None else [case.ref.text]
    return " ".join(word for word in words if word)


def _facts(action: Git, context: Context) -> list[tuple[str, str]]:
    facts = [("operation", action.operation)]
    if action.remote is not None:
        is_known = action.remote in context.remotes or action.operation not in REACHES | {"clone"}
        facts.append(("remote", action.remote if is_known else f"{action.remote} (not configured)"))
    if action.operation in REACHES:
        facts.append(("known remotes", ", ".join(sorted(context.remotes)) or "none"))
    special = special_flags(action)
    if special:
        facts.append(
            ("options", f"{', '.join(sorted(special))} (only a rule that says so covers it)")
        )
    return facts


def _notes(ref: Ref | None) -> tuple[str, ...]:
    if ref is None:
        return ()
    what = [_KINDS[ref.kind]] if ref.kind in _KINDS else []
    if ref.kind == "mapping":
        what = [f"moves `{ref.name}` at the remote to what `{ref.source}` is here"]
    return (*what, *(["forces"] if ref.force else []), *(["deletes"] if ref.delete else []))


def _miss(pattern: GitPattern, case: SoughtRef, broad: bool) -> RuleLook:
    return _touch_miss(pattern, case) if broad else _cover_miss(pattern, case)


def _cover_miss(pattern: GitPattern, case: SoughtRef) -> RuleLook:
    """Return why an allow rule doesn't cover one ref: the words are checked first, then the
    options."""
    if pattern.is_bare and not case.flags:
        return miss("a wildcard alone covers plain pushes and fetches of branches only", 2)
    words = RuleLook(True, "") if pattern.is_bare else _words_miss(pattern, case)
    if not words.fits or options_agree(pattern.options, case.flags, case.action.operation):
        return words
    wanted = pattern.options - harmless(case.action.operation)
    unsaid = sorted(case.flags - wanted)
    if unsaid:
        return miss(f"doesn't say {_listed(unsaid)}, and only a rule that does covers it", 1)
    return miss(f"is only about {_listed(sorted(wanted - case.flags))}, which isn't there", 2)


def _words_miss(pattern: GitPattern, case: SoughtRef) -> RuleLook:
    """Return the first word that differs from the nearest name of an action; a fit if no word
    differs."""
    words = pattern.words
    alike = [name for name in case.subjects if len(name) == len(words)]
    if not alike:
        return _other_form(words, case)
    name = min(
        alike,
        key=lambda one: [not word_covers(*pair) for pair in zip(words, one, strict=True)],
    )
    for at, (wanted, word) in enumerate(zip(words, name, strict=True)):
        if not word_covers(wanted, word):
            if at == 0 and len(words) > 1:
                return miss(f"is about `{wanted}`; here the operation is `{word}`", FAR)
            return miss(f"is about `{wanted}`; here it is `{word}`{_hint(wanted, word)}", 2)
    return RuleLook(True, "")


def _other_form(words: Sequence[str], case: SoughtRef) -> RuleLook:
    operation = case.action.operation
    if len(words) == 1 and words[0] not in REACHES and operation == "push":
        return miss(f"is about plain pushes to the branch `{words[0]}`", 3)
    is_same = word_covers(words[0], operation)
    return miss(f"is about `{' '.join(words)}`; this is `{_name(case)}`", 3 if is_same else FAR)


def _hint(wanted: str, word: str) -> str:
    if "*" not in wanted:
        return ""
    if word in ("HEAD", "@", ":") or "*" in word:
        return ", which doesn't say what it moves: no wildcard covers it"
    if (":" in word) != (":" in wanted):
        return ", a mapping: no wildcard reaches into one"
    return (
        ", of another namespace"
        if word.startswith(("refs/", "tags/", "heads/", "remotes/"))
        else ""
    )


def _touch_miss(pattern: GitPattern, case: SoughtRef) -> RuleLook:
    """Return why a deny or ask rule doesn't apply to one ref."""
    words, operation = pattern.words, case.action.operation
    if case.is_touched(pattern._replace(options=frozenset())):
        missing = sorted(pattern.options - harmless(operation))
        return miss(f"is only about {_listed(missing)}, which isn't there", 2)
    if len(words) == 1 and operation == "push" and words[0] not in REACHES:
        return miss(f"is about the branch `{words[0]}`", 3)
    if len(words) > 1 and fits(words[0], operation):
        rest = " ".join(word for word in words[1:] if not is_star(word))
        return miss(f"is about `{rest}`; this is `{_name(case)}`", 3)
    return miss(f"is about `{' '.join(words)}`; here the operation is `{operation}`", FAR)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


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
    read=_read,
    options=_options,
)
