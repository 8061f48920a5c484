"""Render a review as Markdown: `review.md` of its session.

Pure. Everything in a review is a model's words about untrusted code, so none of it may become
markup: no link, image, heading or HTML, in any reader (law 6). Only the lines that this module
writes itself are Markdown.
"""

import re
from collections.abc import Mapping
from typing import Any

from supervisor.core.text.display import visible

SEVERITIES = ("critical", "high", "medium", "low", "info")
_VERDICTS = {
    "approve": "approved",
    "comment": "comments only",
    "request_changes": "changes are requested",
}
# Every character that begins an inline construct in CommonMark or GitHub's dialect.
_INLINE = re.compile(r"([\\`*_\[\]<>|~!&$@#])")
# An escape, as CommonMark 2.4 has it.
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
# Line starts that make a Markdown block: lists, rules, underlines of headings, tables. A slash
# makes no block, but bots treat the text after it as a command.
_BLOCK = re.compile(r"^([^\S\n]*)(?:([+=:/-])|(\d{1,9})([.)]))", re.MULTILINE)
# GitHub's dialect makes links of bare addresses, wherever in a word they begin.
_BARE_LINK = re.compile(r"(https?|ftp|mailto|xmpp)(:)|(www)(\.)", re.IGNORECASE)


# Texts that a forge turns into mentions and references after rendering, even if they were escaped.
# Bitbucket's are `@{ID}`.
_NAME = re.compile(r"[@\uff20](?=[\w{-])")
_ISSUE = re.compile(r"#(?=\d)|\b(GH)-(?=\d)", re.IGNORECASE)


def review_markdown(review: Mapping[str, Any]) -> str:
    """Return the document; `review` has the fields of the agent API's `ReviewBody`."""
    findings = sorted(review["findings"], key=lambda one: SEVERITIES.index(one["severity"]))
    compared = f"{review.get('base') or 'nothing'} to {review.get('head') or 'the working tree'}"
    lines = [
        "# Review",
        "",
        f"- Verdict: {_VERDICTS[review['verdict']]}",
        f"- Model: {plain(review['model'], one_line=True)}",
        f"- Compared: {plain(compared, one_line=True)}",
        f"- Findings: {len(findings)}",
        *([f"- Partial: {plain(why, one_line=True)}"] if (why := review.get("partial")) else []),
        "",
        plain(review["summary"]),
        "",
    ]
    for number, finding in enumerate(findings, 1):
        lines += _finding(number, finding)
    return "\n".join(lines)


def _finding(number: int, finding: Mapping[str, Any]) -> list[str]:
    where = f"{finding['path']}:{finding['line']}" if finding.get("line") else finding["path"]
    lines = [
        f"## {number}. {finding['severity']}: {plain(finding['title'], one_line=True)}",
        "",
        plain(where, one_line=True),
        "",
        plain(finding["body"]),
        "",
    ]
    if finding.get("suggestion"):
        lines += ["Suggestion:", "", fenced(finding["suggestion"]), ""]
    return lines


def plain(text: str, *, one_line: bool = False) -> str:
    """Return `text` as Markdown that reads as this text and nothing else. Line breaks are kept,
    unless `one_line`."""
    shown = visible(text.replace("\r\n", "\n"), one_line=one_line)
    found = line_escaped(escaped(shown))
    return found.strip() if one_line else unindented(found)


def escaped(text: str) -> str:
    """Return visible text that holds no inline markup, mention or bare link."""
    made = _INLINE.sub(r"\\\1", parted(text))
    return _BARE_LINK.sub(lambda found: "\\".join(part for part in found.groups() if part), made)


def line_escaped(text: str) -> str:
    """Return text without inline markup in a form whose lines begin no block."""
    return _BLOCK.sub(lambda found: "".join(_escape_block(found)), text)


def unescaped(text: str) -> str:
    """Undo `plain`: return Markdown as it reads, without escapes."""
    return _ESCAPE.sub(r"\1", text)


def parted(text: str) -> str:
    """Return `text` in a form that mentions no name and refers to no issue. A forge looks for both
    after rendering, so an escaped `@` would count again."""
    text = _NAME.sub(lambda found: f"{found[0]} ", text)
    return _ISSUE.sub(lambda found: f"{found[1]} " if found[1] else "# ", text)


def in_message(text: str) -> str:
    """Return a stranger's visible words for a commit's message: they mention no name, refer to no
    issue, and have no tests skipped (`[skip ci]`)."""
    for sign, shown in (("[", "("), ("]", ")"), ("***", "* * *")):
        text = text.replace(sign, shown)
    return parted(text)


def _escape_block(found: re.Match[str]) -> tuple[str, ...]:
    space, mark, number, dot = found.groups()
    return (space, "\\", mark) if mark else (space, number, "\\", dot)


def unindented(text: str) -> str:
    """Replace indentation by no-break spaces: four plain spaces would make a block of code, in
    which escapes are shown literally."""
    return re.sub(
        r"^[ \t]+", lambda found: "\u00a0" * len(found[0].expandtabs(4)), text, flags=re.MULTILINE
    )


def fenced(text: str, info: str = "") -> str:
    """Return a block of code of the kind `info`. Nothing in it is markup except its fence, so the
    fence is longer than any in the text."""
    shown = visible(text.replace("\r\n", "\n"))
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{info}\n{shown}\n{fence}"
