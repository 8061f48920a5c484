"""Globs over `/`-separated paths, compiled to regular expressions in linear time.

Decides what `*`, `**`, `?` and `[...]` mean, for files and for the paths of URLs alike: `*` stays
in a segment, `**` alone stands for any number of segments, dot files are like any others. Matching
takes linear steps: before every wildcard except the last, the leftmost fit is taken and never given
back (a later one is never better).
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from supervisor.core.text.words import ANYTHING, stars_fit
from supervisor.errors import PolicyError

_MAGIC = re.compile(r"[*?\[]")
_NOT_STAR = re.compile(r"[?\[]")
_IGNORE_MAGIC = re.compile(r"[*?\[\\]")
_ONE = re.compile(r"\[([^\]!])\]")
MAX_WILDCARDS = 64


class Glob:
    """A pattern. `literal` is the path that it spells out, None if it has a wildcard. Compiled when
    first matched."""

    __slots__ = ("_fits", "fixed", "last", "literal", "text")

    def __init__(self, text: str) -> None:
        """`text` is relative, without `.` and empty segments; see `check`."""
        self.text = text
        segments = text.split("/")
        plain = [_unescaped(segment) for segment in segments]
        wild = plain.index(None) if None in plain else len(plain)
        self.fixed = tuple([segment for segment in plain[:wild] if segment is not None])
        self.literal = "/".join(self.fixed) if wild == len(plain) else None
        # The last segment's literal text or its ending, for an index: "*.pem" -> ".pem".
        self.last = plain[-1]
        self._fits: Callable[[str], object] | None = None

    @property
    def start(self) -> str:
        """Return the common start of all matching paths: the text up to the first wildcard. `a/**`
        matches `a`, too."""
        found = _MAGIC.search(self.text)
        start = self.text[: found.start()] if found else self.text
        return start.removesuffix("/") if self.text.startswith("**", len(start)) else start

    @property
    def name_inside(self) -> str | None:
        """Return a name that every matching path contains, after the first wildcard and before the
        last name; None if none is spelled out."""
        between = self.text.split("/")[len(self.fixed) + 1 : -1]
        return next(
            (plain for segment in between if (plain := _unescaped(segment)) is not None), None
        )

    def matches(self, path: str) -> bool:
        """Return whether a canonical path matches."""
        if self.literal is not None:
            return path == self.literal
        if self._fits is None:
            self._fits = _compiled(self.text)
        return bool(self._fits(path))


def has_wildcard(text: str) -> bool:
    """Return whether a pattern has a wildcard, other than one in brackets that stands for itself
    (`[[]`)."""
    return any(_unescaped(segment) is None for segment in text.split("/"))


def escape(path: str) -> str:
    """Return the pattern that matches exactly this path."""
    return _MAGIC.sub(lambda found: f"[{found[0]}]", path)


def check(text: str, rule: str) -> None:
    """Raise `PolicyError` if a glob is written in a way that would surprise. `rule` is the text to
    show."""
    segments = text.split("/")
    for segment in segments:
        if "**" in segment and segment != "**":
            raise PolicyError(
                f"`**` beside other characters in `{rule}`",
                f"`**` stands alone between slashes; did you mean `**/{
                    re.sub('[*]+', '*', segment)
                }`?",
            )
        if "[" in segment and _unclosed(segment):
            raise PolicyError(
                f"`[` without `]` in `{rule}`", "write `[[]` for the character itself"
            )
    if len(text) > MAX_WILDCARDS and len(_MAGIC.findall(text)) > MAX_WILDCARDS:
        raise PolicyError(
            f"more than {MAX_WILDCARDS} wildcards in `{rule[:80]}`", "write several rules"
        )


def _unclosed(segment: str) -> bool:
    at = 0
    while (at := segment.find("[", at)) >= 0:
        end = _class_end(segment, at)
        if end < 0:
            return True
        at = end + 1
    return False


def _class_end(segment: str, start: int) -> int:
    """Return the index of the `]` that ends the class starting at `start`; -1 if there is none."""
    first = start + 1 + (segment[start + 1 : start + 2] in ("!", "^"))
    return segment.find("]", first + 1)


def _unescaped(segment: str) -> str | None:
    if not _MAGIC.search(segment):
        return segment
    plain = _ONE.sub(lambda found: "" if found[1] in "*?[" else found[0], segment)
    return None if _MAGIC.search(plain) else _ONE.sub(lambda found: found[1], segment)


def inner_expression(text: str) -> str:
    """Return the regular expression of a glob without `**`, without anchors, for use inside another
    expression. Two `**` in one expression would be tried in all combinations."""
    return "/".join(map(_segment, text.split("/")))


@lru_cache(maxsize=16384)
def _compiled(text: str) -> Callable[[str], object]:
    segments = text.split("/")
    if "**" not in segments:
        fixed = [_step(one) for one in segments]
        return lambda path: (
            len(names := path.split("/")) == len(fixed) and all(map(_takes, fixed, names))
        )
    plain = [_unescaped(one) for one in segments[:-1]]
    if segments[-1] == "**" and None not in plain:
        # The most common form needs no expression: everything below a folder, including the folder.
        folder = "/".join(one for one in plain if one is not None)
        return lambda path: not folder or path == folder or path.startswith(f"{folder}/")
    steps = steps_of(text)
    return lambda path: steps_fit(steps, path.split("/"))


type GlobStep = str | Callable[[str], object] | None


def steps_of(text: str) -> tuple[GlobStep, ...]:
    """Return a matcher for each segment of a pattern, for `steps_fit`."""
    return tuple(_step(segment) for segment in text.split("/"))


def _step(segment: str) -> GlobStep:
    """Return None for `**`, the name itself if it is spelled out, else a matcher."""
    if segment == "**":
        return None
    literal = _unescaped(segment)
    if literal is not None:
        return literal
    if not _NOT_STAR.search(segment):
        # Most patterns: no expression need be compiled for them.
        return partial(stars_fit, segment.split("*"))
    return re.compile(_segment(segment) + r"\Z", re.DOTALL).match


def _takes(step: GlobStep, name: str) -> bool:
    return step is None or (step == name if isinstance(step, str) else bool(step(name)))


def steps_fit(steps: Sequence[GlobStep], path: Sequence[str]) -> bool:
    """Return whether segments match steps: an equal text, a check, or None for any number of
    segments (`**`).

    Only the last `**` is ever stretched, so it takes n * m steps at most.
    """
    step = at = 0
    last, mark = -1, 0
    while at < len(path):
        one = steps[step] if step < len(steps) else ""
        if one is None:
            last, mark, step = step, at, step + 1
        elif step < len(steps) and (one == path[at] if isinstance(one, str) else one(path[at])):
            step, at = step + 1, at + 1
        elif last >= 0:
            mark += 1
            step, at = last + 1, mark
        else:
            return False
    return all(one is None for one in steps[step:])


def ignore_step(segment: str, flags: re.RegexFlag = re.NOFLAG) -> GlobStep:
    """Return the step of a segment as git's ignore files write it: `\\` makes the next character
    literal. Raise `ValueError` if git ignores the line."""
    if segment == "**":
        return None
    if not flags and not _IGNORE_MAGIC.search(segment):
        return segment
    return re.compile(_segment(segment, escape="\\") + r"\Z", re.DOTALL | flags).match


def _segment(segment: str, escape: str = "") -> str:
    """Return the expression of one segment; `escape` makes the next character literal."""
    parts: list[str] = [""]
    at = 0
    while at < len(segment):
        char = segment[at]
        if char == "*":
            if parts[-1] or len(parts) == 1:
                parts.append("")
        elif char == "?":
            parts[-1] += "[^/]"
        elif char == "[" and (end := _class_end(segment, at)) > 0:
            parts[-1] += _class(segment[at + 1 : end])
            at = end
        elif char == escape and at + 1 < len(segment):
            at += 1
            parts[-1] += re.escape(segment[at])
        elif escape and char in ("[", escape):
            raise ValueError(segment)
        else:
            parts[-1] += re.escape(char)
        at += 1
    if len(parts) == 1:
        return parts[0]
    first, *middle, last = parts
    return first + "".join(f"(?>[^/]*?{one})" for one in middle if one) + "[^/]*" + last


def _class(inner: str) -> str:
    negated = inner[:1] in ("!", "^")
    body = inner[1:] if negated else inner
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", body)
    # A range that runs backwards matches nothing; `re` would refuse it.
    try:
        re.compile(f"[{escaped}]")
    except re.error:
        return "(?!)"
    return f"(?!/)[{'^' if negated else ''}{escaped}]"


# -- one glob within another -----------------------------------------------------------------------


def path_in_path(wide: str, narrow: str) -> bool:
    """Return whether `wide` matches every path that the glob `narrow` matches."""
    outer, inner = wide.split("/"), narrow.split("/")
    if outer[-1] != "**" and not _segment_in(outer[-1], inner[-1]):
        # Most pairs end differently.
        return False
    return _segments_in(outer, inner)


@lru_cache(maxsize=16384)
def _glob(segment: str) -> Glob:
    return Glob(segment)


def _segments_in(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Return whether one list of segments contains the other, computed from the ends: `below[j]`
    says whether the rest of `wide` contains `narrow[j:]`."""
    below = [False] * len(narrow) + [True]
    for one in reversed(wide):
        row = [False] * len(narrow) + [one == "**" and below[-1]]
        for j in range(len(narrow) - 1, -1, -1):
            if one == "**":
                row[j] = below[j] or row[j + 1]
            else:
                row[j] = below[j + 1] and narrow[j] != "**" and _segment_in(one, narrow[j])
        below = row
    return below[0]


def _segment_in(wide: str, narrow: str) -> bool:
    if wide in (narrow, "*"):
        return True
    literal = _glob(narrow).literal
    if literal is not None:
        return _glob(wide).matches(literal)
    if _glob(wide).literal is not None or any(char in wide + narrow for char in "?["):
        return False
    return _glob(wide).matches(narrow.replace("*", ANYTHING))


def spelled_segments(glob: Glob) -> list[str]:
    """Return the segments without a wildcard, and the empty text: a segment that one glob spells
    out is also spelled out by every glob within it."""
    return ["", *(one for one in glob.text.split("/") if not has_wildcard(one))]


def longest_segment(glob: Glob) -> str:
    """Return the longest of these segments, the last one if several are equal: globs of one folder
    differ further below."""
    return max(reversed(spelled_segments(glob)), key=len)
