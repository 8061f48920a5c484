"""A pull request on the demo forge as a page for people: its diff, reviews and comments.

Markdown is rendered as a forge does it, with links, images and mentions, by other code than the
pages of Gatehouse: what should have stayed text is seen here if it didn't.
"""

import re
from typing import NamedTuple

import nh3
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markupsafe import Markup, escape

from supervisor.reviews.demo.forge import DemoForge
from supervisor.reviews.demo.state import DemoPull, DemoRepository, Json, Tongue
from supervisor.settings import ROOT

SHEETS = ("tokens.css", "page.css")
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_MENTION = re.compile(r"(?<![\w@/])@([A-Za-z0-9][\w-]*(?:/[\w-]+)?)")
_ISSUE = re.compile(r"(?<!\w)#(\d+)\b")
_BARE = re.compile(r"(?<!\w)((?:https?://|www\.)[^\s<]+)")
_STATES = {
    "COMMENTED": "reviewed",
    "APPROVED": "approved these changes",
    "CHANGES_REQUESTED": "requested changes",
    "DISMISSED": "reviewed; the verdict was dismissed",
}
_templates = Environment(
    loader=FileSystemLoader(ROOT / "web" / "templates"), autoescape=True, undefined=StrictUndefined
)


class _Row(NamedTuple):
    """A line of the diff, with the comments that stand below it."""

    kind: str
    old: int | None
    new: int | None
    text: str
    comments: list[Json]


class _File(NamedTuple):
    """A changed file of the pull request."""

    path: str
    rows: list[_Row]


def sheet(name: str) -> bytes:
    """Return a style sheet of the page."""
    return (ROOT / "web" / "static" / "css" / name).read_bytes()


def pull_page(forge: DemoForge, repository: DemoRepository, pull: DemoPull) -> str:
    """Return the page of a pull request."""
    names = forge.diff(repository, pull, "--name-only", "-z")
    with forge.lock:
        comments = [dict(one) for one in pull.comments]
        said = [
            dict(one)
            for one in (*pull.reviews, *pull.issue_comments)
            if one["body"] and not one.get("is_deleted")
        ]
        checks = [one for one in repository.checks if one["head_sha"] == pull.head_sha]
    files = _files(forge.patch(repository, pull), names.split("\0")[:-1], comments, forge.tongue)
    placed = {one["id"] for file in files for row in file.rows for one in row.comments}
    return _templates.get_template("demo_pull.html").render(
        repository=repository.full_name,
        pull=pull,
        description=rendered(pull.body, forge.tongue),
        said=[_shown(one, forge.tongue) for one in sorted(said, key=lambda one: one["at"])],
        verdicts=pull.verdicts.items(),
        resolved=pull.resolved,
        files=files,
        outdated=[_shown(one, forge.tongue) for one in comments if one["id"] not in placed],
        checks=checks,
    )


def _bare_links(state: StateCore) -> None:
    """Make links of bare addresses as they are written: not of what an escape makes into one."""
    for block in state.tokens:
        for one in block.children or ():
            if one.type == "text" and _BARE.search(one.content):
                one.type = "html_inline"
                one.content = _BARE.sub(r'<a href="\1">\1</a>', str(escape(one.content)))


def _reader(*, html: bool) -> MarkdownIt:
    found = MarkdownIt("commonmark", {"html": html, "breaks": True})
    found.enable(["table", "strikethrough"])
    found.core.ruler.before("text_join", "bare_links", _bare_links)
    return found


# Bitbucket shows HTML as text.
_READERS: dict[Tongue, MarkdownIt] = {
    "github": _reader(html=True),
    "bitbucket": _reader(html=False),
}


def rendered(markdown: str, tongue: Tongue = "github") -> Markup:
    """Return Markdown as a forge shows it."""
    html = nh3.clean(_READERS[tongue].render(markdown))
    parts = re.split(r"(<(?:a|code|pre)\b.*?</(?:a|code|pre)>|<[^>]*>)", html, flags=re.DOTALL)
    return Markup("".join(one if at % 2 else _linked(one) for at, one in enumerate(parts)))  # noqa: S704


def _linked(text: str) -> str:
    """Return a text of the page with links to the names and issues in it."""
    text = _MENTION.sub(r'<a class="mention" href="/\1">@\1</a>', text)
    return _ISSUE.sub(r'<a class="issue" href="\1">#\1</a>', text)


def _files(patch: str, names: list[str], comments: list[Json], tongue: Tongue) -> list[_File]:
    found: list[_File] = []
    old = new = 0
    is_in_hunk = False
    for text in patch.split("\n"):
        if text.startswith("diff --git "):
            found.append(_File(names[len(found)], []))
            is_in_hunk = False
        elif hunk := _HUNK.match(text):
            old, new, is_in_hunk = int(hunk[1]), int(hunk[2]), True
            found[-1].rows.append(_Row("hunk", None, None, hunk[0], []))
        elif is_in_hunk and text[:1] == "-":
            found[-1].rows.append(_Row("rem", old, None, text[1:], []))
            old += 1
        elif is_in_hunk and text[:1] in ("+", " "):
            is_added = text[0] == "+"
            here = [
                _shown(one, tongue)
                for one in comments
                if (one["path"], one["line"]) == (found[-1].path, new)
            ]
            kind, before = ("add", None) if is_added else ("", old)
            found[-1].rows.append(_Row(kind, before, new, text[1:], here))
            old, new = old + (not is_added), new + 1
    return found


def anchor(one: Json, tongue: Tongue = "github") -> str:
    """Return the name of a review's or a comment's place on the page."""
    kind = "pullrequestreview-" if "state" in one else "discussion_r" if "path" in one else ""
    return f"{'comment-' if tongue == 'bitbucket' else kind or 'issuecomment-'}{one['id']}"


def _shown(one: Json, tongue: Tongue) -> Json:
    """Return a review or a comment, with what the page says of it."""
    return {
        "id": one["id"],
        "anchor": anchor(one, tongue),
        "by": one["by"],
        "did": _STATES.get(one["state"], "reviewed") if "state" in one else "commented",
        "at": one["at"],
        "html": rendered(one["body"], tongue),
        "path": one.get("path", ""),
        "line": one.get("original_line"),
    }
