"""Mentions: comments on a pull request that call us.

    mention = ("@" APP | "!") id [SP arguments]     at the start of the first line that isn't blank

Pure. The caller asks the forge who wrote a mention and whether they may. Until then its arguments
are a stranger's words, and they stay data afterwards: they never become instructions for a reader.
"""

import re
from typing import NamedTuple, cast

from supervisor.core.forge_acts import Severity
from supervisor.core.review_markdown import fenced, plain, unescaped
from supervisor.core.safe_markdown import code_span, fitted, safe_line
from supervisor.reviews.core.findings import Finding
from supervisor.reviews.core.tracking import TrackedFinding

MOST_ARGUMENT_CHARS = 2_000
# `ignore ID --repository REASON`: in the whole repository, not only in this pull request.
EVERYWHERE = "--repository"
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
_FINDING = re.compile(r"[0-9a-f]{6,64}\Z")
# Ours: a title has no `**` of its own.
_SHOWN = re.compile(r"\*\* `([0-9a-f]{8})`")
_HEAD = re.compile(r"\*\*(critical|high|medium|low): (.{1,300})\*\* `([0-9a-f]{8})`\Z")


class Mention(NamedTuple):
    """`command`: a built-in one, or the id of a prompt. `argv`: its arguments as words."""

    command: str
    arguments: str
    argv: tuple[str, ...]

    @property
    def is_too_long(self) -> bool:
        """Return whether its arguments are too long to be read."""
        return len(self.arguments) > MOST_ARGUMENT_CHARS


class Ignored(NamedTuple):
    """The content of an `ignore`: which finding ("" in a thread: the thread's own), why, and where
    it applies."""

    finding: str
    why: str
    everywhere: bool


def parse_mention(body: str, app: str, *, takes_bang: bool = False) -> Mention | None:
    """Return what a comment asks for; None if it isn't addressed to us. `app` is our name, in any
    letter case; `takes_bang`: `!` addresses us, too."""
    line = next((one for one in body.replace("\r\n", "\n").split("\n") if one.strip()), "")
    name, _, rest = line.partition(" ")
    if name.casefold() == f"@{app}".casefold():
        command, _, arguments = rest.strip().partition(" ")
    elif takes_bang and name.startswith("!"):
        command, arguments = name[1:], rest
    else:
        return None
    if not _ID.match(command):
        return None
    text = arguments.strip()
    return Mention(command, text, split_words(text))


def split_words(text: str) -> tuple[str, ...]:
    """Return a text's words, split at blanks. `"..."` and `'...'` are one word; an unclosed quote
    extends to the end."""
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] in "\"'":
            end = text.find(text[at], at + 1)
            end = len(text) if end < 0 else end
            words.append(text[at + 1 : end])
            at = end + 1
        else:
            end = next((n for n in range(at, len(text)) if text[n].isspace()), len(text))
            words.append(text[at:end])
            at = end
    return tuple(words)


def read_ignore(mention: Mention) -> Ignored:
    """Parse the arguments of an `ignore`."""
    words = [one for one in mention.argv if one != EVERYWHERE]
    finding = words[0].strip("`") if words and _FINDING.match(words[0].strip("`")) else ""
    return Ignored(finding, " ".join(words[bool(finding) :]), EVERYWHERE in mention.argv)


def finding_of(comment: str) -> str:
    """Return the short id of the finding that our comment is about; "" if it is about none."""
    found = _SHOWN.search(comment.split("\n", 1)[0])
    return found[1] if found else ""


def shown_finding(comment: str, path: str, line: int) -> TrackedFinding | None:
    """Return the posted finding that our comment shows; None if it shows none."""
    head, _, body = comment.partition("\n")
    found = _HEAD.match(head.strip())
    if found is None:
        return None
    severity, title, short_id = cast("tuple[Severity, str, str]", found.groups())
    said = Finding(
        path=path,
        line=line or None,
        severity=severity,
        title=unescaped(title),
        body=body.strip() or title,
    )
    return TrackedFinding(id=short_id, finding=said, state="open", line=line, is_posted=True)


def why_text(one: TrackedFinding) -> str:
    """Return the answer to `why`: the grounds of a finding."""
    finding = one.finding
    lines = [
        f"**{finding.severity}: {safe_line(finding.title)}** `{one.id[:8]}`",
        "",
        fitted(finding.body, 2_000),
        "",
        f"- state: {one.state}; confidence: {finding.confidence}",
    ]
    if finding.skill:
        lines.append(f"- found by: {plain(finding.skill, one_line=True)}")
    where = f"{finding.path}:{one.line}" if one.line else finding.path
    lines.append(f"- where: {code_span(where)}")
    if finding.quote:
        lines += ["", fenced("\n".join(finding.quote.splitlines()[:10])[:2_000])]
    return "\n".join(lines)
