"""Name the word by which an exec rule misses a command.

Decides nothing: it asks `exec_patterns` word by word whether words are covered or meant; only the
wording is made here. It is separate from `explain_exec`, which knows a whole line and every rule.
"""

from bisect import bisect_left
from typing import NamedTuple

from msgspec.structs import replace

from supervisor.core.lab.explanation import FAR, RuleLook, miss
from supervisor.core.shell.exec_patterns import (
    ExecPattern,
    PatternWord,
    covers,
    might_touch,
    touches,
)
from supervisor.core.shell.exec_tables import basename
from supervisor.core.shell.shell_words import Word

UNKNOWN_NAME = miss("the name of the command holds an expansion: no rule covers it", FAR)
_NAME_ONLY = frozenset({0})


class View(NamedTuple):
    """A command as allow rules compare it, with facts about its words: positions, see
    `exec_patterns.covers`."""

    words: tuple[Word, ...]
    inside: frozenset[int]
    opaque: frozenset[int]
    outside: frozenset[int]

    def is_covered(self, pattern: ExecPattern) -> bool:
        """Return whether a pattern covers it."""
        return covers(pattern, self.words, self.inside, opaque=self.opaque, outside=self.outside)

    def starts_covered(self, pattern: ExecPattern, count: int) -> bool:
        """Return whether its first words are covered, however it goes on: once they aren't, more
        aren't either."""
        has_tail = pattern.has_tail and count > len(pattern.words)
        stays = has_tail and pattern.stays_inside
        start = replace(pattern, words=pattern.words[:count], has_tail=has_tail, stays_inside=stays)
        inside = self.inside | _NAME_ONLY
        return covers(start, self.words[:count], inside, opaque=self.opaque, outside=self.outside)


def cover_miss(pattern: ExecPattern, view: View) -> RuleLook:
    """Return the first word by which an allow rule misses a command. `covers` is asked; nothing is
    compared here."""
    if view.is_covered(pattern):
        return RuleLook(
            True, "would cover it too; another rule that does is asked first", stopped="spare"
        )
    words = view.words
    most = len(words) if pattern.has_tail else min(len(words), len(pattern.words))
    at = bisect_left(
        range(1, most + 1), True, key=lambda count: not view.starts_covered(pattern, count)
    )
    if at == 0:
        return _other_name(pattern.words[0], words[0])
    if at < most:
        wanted = pattern.words[at] if at < len(pattern.words) else None
        look = _other_word(wanted, words[at], at, is_opaque=at in view.opaque - view.inside)
        if wanted is not None and any(word.text == wanted.literal for word in words[at:]):
            look = look._replace(distance=min(look.distance, 2))
        # A rule about any program that is used so (`* --version`) comes near to none.
        return look if pattern.words[0].literal is not None else look._replace(distance=FAR)
    if len(words) < len(pattern.words):
        distance = FAR if pattern.words[0].literal is None else 3 if len(words) == 1 else 2
        return miss(
            f"goes on with `{pattern.words[len(words)].raw}`; the command ends before", distance
        )
    if len(words) > len(pattern.words) and not pattern.has_tail:
        return miss(
            f"ends before `{words[len(pattern.words)].text}`; `exec({pattern.text} *)` would cover"
            " more words",
            1,
        )
    # All that is left to be wrong with words that fit one by one.
    return miss(f"`{words[0].text}` would run what it reads: no wildcard covers that", 1)


def other_program(wanted: PatternWord) -> RuleLook:
    return miss(f"is about another program, `{wanted.raw or wanted.literal}`", FAR)


def _other_name(wanted: PatternWord, name: Word) -> RuleLook:
    if not name.is_literal:
        return UNKNOWN_NAME
    if basename(name.text) == (wanted.literal or ""):
        return miss(
            f"`{name.text}` isn't the system's `{wanted.literal}`: only a rule that names that path"
            " covers it",
            2,
        )
    return other_program(wanted)


def _other_word(wanted: PatternWord | None, word: Word, at: int, *, is_opaque: bool) -> RuleLook:
    if wanted is not None and wanted.literal is not None:
        return miss(
            f"says `{wanted.literal}`; here word {at + 1} is `{word.text}`", 3 if at == 1 else 2
        )
    if is_opaque:
        return miss(f"no wildcard covers `{word.text}`: only a rule that spells it out", 1)
    if not word.is_literal:
        return miss(
            f"no wildcard covers `{word.text}`: what it becomes isn't known before it runs", 1
        )
    if wanted is None:
        return miss(f"`{word.text}` may lie outside of the workspace", 1)
    return miss(f"says `{wanted.raw}`; here word {at + 1} is `{word.text}`", 3 if at == 1 else 2)


def touch_miss(pattern: ExecPattern, words: tuple[Word, ...]) -> RuleLook:
    """Return why a deny or ask rule isn't about a command."""
    name = replace(pattern, words=pattern.words[:1], has_tail=True, stays_inside=False)
    if not touches(name, words[:1]):
        return other_program(pattern.words[0])
    if might_touch(pattern, words):
        return miss(
            "isn't surely about it, but an expansion may make it so: then no rule may allow it", 1
        )
    missing = next(
        (one for one in pattern.words[1:] if not any(one.matches(word.text) for word in words[1:])),
        None,
    )
    if missing is not None:
        return miss(f"says `{missing.raw}`, which isn't among its words", 3)
    return miss("has these words in other places", 2)
