"""Exec pattern containment: whether one pattern already covers another.

For `exec_category`. A command line can be read in more ways than any other action: wrappers,
options in any order, expansions. It must never say yes if some command could prove it wrong.
"""

from supervisor.core.shell.exec_patterns import ExecPattern, PatternWord
from supervisor.core.shell.exec_tables import Program, basename, opaque_words, runs_input, tables
from supervisor.core.shell.exec_wrappers import unwrap
from supervisor.core.shell.shell_words import Word

_ANYTHING = "\x00"


def allow_in_allow(outer: ExecPattern, inner: ExecPattern) -> bool:
    """Return whether the allow rule `outer` covers every command that the allow rule `inner`
    covers.

    Both cover word by word. Three cases need care: a rule for a wrapper also applies to the wrapped
    command; a literal word of `inner` may be one that no wildcard covers; and a wildcard covers a
    word with an expansion only under conditions.
    """
    if outer.is_bare or inner.is_bare:
        return False
    if _is_same(outer, inner) and outer.stays_inside in (False, inner.stays_inside):
        return True
    if (
        not _same_name(outer, inner)
        or not _has_room(outer, inner, allows=True)
        or _speaks_of_a_payload(inner)
    ):
        return False
    lead = _literal_lead(inner)
    words = [Word(text) for text in lead]
    guarded = opaque_words(words)
    for i, mine in enumerate(inner.words[1:], start=1):
        wanted = outer.words[i] if i < len(outer.words) else None
        if wanted is not None and (
            wanted == mine or (wanted.literal == mine.literal and not _may_be_a_glob(mine))
        ):
            continue
        if mine.literal is None:
            # A command line's glob matches only the same glob in a rule, or the last `*`.
            if wanted is not None:
                return False
            continue
        if i >= len(lead) or i in guarded or _may_be_a_glob(mine):
            return False
        if wanted is not None and not wanted.matches(mine.literal):
            return False
    is_open = outer.has_tail or any(word.literal is None for word in outer.words)
    return not (is_open and inner.is_exact and runs_input(words))


def strict_in_strict(outer: ExecPattern, inner: ExecPattern) -> bool:
    """Return whether the deny or ask rule `outer` touches every command that the deny or ask rule
    `inner` touches or may touch."""
    if outer.is_bare:
        return True
    if inner.is_bare:
        return False
    if _is_same(outer, inner):
        return True
    if not _same_base(outer, inner):
        return False
    if _is_whole_program(outer):
        return True
    # A rule with options looks for them anywhere in the words; a rule without options compares the
    # words in order.
    if any(_may_be_an_option(word) for word in inner.words[1:]):
        return False
    return _has_room(outer, inner) and all(
        wanted.matches(_as_text(mine))
        for wanted, mine in zip(outer.words[1:], inner.words[1:], strict=False)
    )


def allow_in_strict(outer: ExecPattern, inner: ExecPattern) -> bool:
    """Return whether the deny or ask rule `outer` touches every command that the allow rule `inner`
    covers."""
    if outer.is_bare:
        return True
    if inner.is_bare or not _same_base(outer, inner):
        return False
    if _is_whole_program(outer):
        return True
    program = tables().programs.get(basename(inner.words[0].literal or ""))
    if program is not None and not (
        program.free_dirs | program.free_flags
    ) <= program.globals | _skipped(program):
        # `npm -C a -C b test` is judged as `npm test`, and a deny rule would not see through it.
        return False
    if not _has_room(outer, inner):
        return False
    for wanted, mine in zip(outer.words[1:], inner.words[1:], strict=False):
        if mine.literal is None or _may_be_a_glob(mine) or not wanted.matches(mine.literal):
            return False
    return True


def _skipped(program: Program) -> frozenset[str]:
    """Return the options before a subcommand that `touches` passes over."""
    return program.free_flags if program.globals else frozenset()


def _same_name(outer: ExecPattern, inner: ExecPattern) -> bool:
    name = inner.words[0].literal
    return name is not None and outer.words[0].literal == name


def _same_base(outer: ExecPattern, inner: ExecPattern) -> bool:
    wanted, mine = outer.words[0].literal, inner.words[0].literal
    return wanted is not None and mine is not None and basename(wanted) == basename(mine)


def _is_same(outer: ExecPattern, inner: ExecPattern) -> bool:
    return (outer.words, outer.has_tail) == (inner.words, inner.has_tail)


def _has_room(outer: ExecPattern, inner: ExecPattern, *, allows: bool = False) -> bool:
    """Return whether the outer pattern takes as many words as the inner one."""
    if outer.stays_inside and allows:
        # Whether a word lies inside depends on where the command runs.
        return len(outer.words) == len(inner.words) and (inner.stays_inside or not inner.has_tail)
    if outer.has_tail:
        return len(outer.words) <= len(inner.words)
    return len(outer.words) == len(inner.words) and not inner.has_tail


def _is_whole_program(pattern: ExecPattern) -> bool:
    return pattern.has_tail and len(pattern.words) == 1


def _literal_lead(pattern: ExecPattern) -> list[str]:
    """Return the words that are spelled out before the first wildcard."""
    lead: list[str] = []
    for word in pattern.words:
        if word.literal is None:
            break
        lead.append(word.literal)
    return lead


def _may_be_a_glob(word: PatternWord) -> bool:
    """Return whether the word, as written, could be a shell pattern: then it matches only an equal
    word."""
    return any(char in word.raw for char in "*?[")


def _may_be_an_option(word: PatternWord) -> bool:
    return (word.parts[0] if word.literal is None else word.literal).startswith("-")


def _as_text(word: PatternWord) -> str:
    return word.literal if word.literal is not None else _ANYTHING.join(word.parts)


def _speaks_of_a_payload(pattern: ExecPattern) -> bool:
    """Return whether the rule could apply to a command that its own command runs; True if that
    can't be told."""
    name = pattern.words[0].literal or ""
    wrapper = tables().wrappers.get(basename(name))
    if wrapper is None:
        return False
    lead = _literal_lead(pattern)
    if pattern.is_exact:
        return unwrap([Word(text) for text in lead]) is not None
    if len(pattern.words) == 1:
        return False
    if len(lead) < len(pattern.words):
        return True
    match wrapper.form:
        case "words":
            return bool(wrapper.after & set(lead))
        case "find":
            return any(text.startswith(("-exec", "-ok")) for text in lead)
        case "module":
            return lead[1] == "-m"
        case _:
            return True


def spelled_words(pattern: ExecPattern) -> list[tuple[str, int, str]]:
    """Return every word that is spelled out, with its place and the program's name; none if the
    name has a wildcard.

    If a pattern spells out a word, every pattern that it contains spells it out at the same place.
    """
    name = pattern.words[0].literal
    if name is None:
        return []
    base = basename(name)
    found = [
        (i, word.literal) for i, word in enumerate(pattern.words) if i and word.literal is not None
    ]
    return [(base, 0, base), *((base, i, text) for i, text in found)]
