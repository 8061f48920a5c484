"""Nothing that a model or a stranger wrote is live in what reaches a forge: shown by a renderer of
Markdown, whatever findings, paths, titles and notes hold."""

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from supervisor.core.forge_acts import Act
from supervisor.reviews.core.findings import Finding, PlacedFinding
from supervisor.reviews.core.posts import PullTarget, note_act, review_act, undo_act, without_places
from supervisor.reviews.core.receipts import ReceiptFacts, check_summary

TARGET = PullTarget(forge="github", repository="acme/shop", number=7, head="a" * 40)
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# What our own templates make.
OURS = {"heading_open", "bullet_list_open", "list_item_open", "strong_open", "fence"}
LIVE = {
    *{"link_open", "image", "html_block", "table_open", "code_block", "s_open"},
    *{"blockquote_open", "hr"},
}
MENTION = re.compile(r"[@\uff20][\w-]|#[0-9]")
BARE = re.compile(r"(?:https?|ftp|mailto|xmpp):|www\.", re.IGNORECASE)
# Code in a run of text, as CommonMark 6.1 has it.
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
COMMAND = re.compile(r"^[^\S\n]*/[A-Za-z]", re.MULTILINE)
PIECES = [
    *(
        "`",
        "``",
        "```",
        "~~~",
        "![",
        "](",
        ")",
        "[x]: ",
        "<img src=x>",
        "<!--",
        "-->",
        "<https://e.t>",
    ),
    *("@ada", "@acme/all", "#1", "GH-1", "/approve", "\n/lgtm", "\n", "\n\n", "\r\n", "\r", "    "),
    *(
        "\t",
        "# ",
        "> ",
        "- ",
        "1. ",
        "|",
        "\n|-|\n",
        "***",
        "___",
        "\\",
        "_http://e.t",
        "1https://e.t",
    ),
    *(
        "www.e.t",
        "_www.e.t",
        "a@b.t",
        "&#64;ada",
        "&lt;",
        "\u2028",
        "\u200b",
        "\u202e",
        "$x$",
        "x",
        " ",
    ),
]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)
PATHS = TEXTS.map(lambda text: text.strip() or "x")


def tokens(markdown: str) -> Iterator[Token]:
    for one in READER.parse(markdown):
        yield one
        yield from one.children or ()


def check(markdown: str) -> None:
    """Fail where anything but our own templates is live."""
    # Our own lines: marks that nobody sees, and small print.
    theirs = re.sub(r"<!-- gatehouse:[a-z0-9:-]+ -->|</?sub>", "", markdown)
    kinds = {one.type for one in tokens(theirs)}
    assert not kinds & LIVE, (kinds & LIVE, theirs)
    for one in tokens(theirs):
        assert one.type != "html_inline", theirs
        if one.type == "text":
            assert not MENTION.search(one.content), theirs
    for one in tokens(theirs):
        if one.type == "inline":
            outside = CODE.sub(".", re.sub(r"\\([\\`])", ".", one.content))
            assert not BARE.search(outside), theirs
            assert not COMMAND.search(outside), theirs


def bodies(act: Act) -> list[str]:
    return [act.body, *(one.body for one in act.comments)]


@given(TEXTS, TEXTS, PATHS, TEXTS, st.none() | TEXTS, TEXTS)
def test_whatever_a_review_holds_is_text(
    summary: str, title: str, path: str, body: str, suggestion: str | None, note: str
) -> None:
    found = [
        PlacedFinding(
            f"{number:016x}",
            Finding(
                path=path, line=5, severity="low", title=title, body=body, suggestion=suggestion
            ),
            line,
            line,
        )
        for number, line in ((1, 5), (2, 0))
    ]
    act = review_act(TARGET, "comment", summary, found, run_id="ab12", notes=[note])
    undo = undo_act(TARGET, ["1"], ["2"], by=title, run_id="ab12")
    for one in (act, without_places(act), note_act(act), undo):
        for text in bodies(one):
            check(text)


@given(TEXTS, PATHS)
def test_whatever_a_receipt_says_is_text(reason: str, path: str) -> None:
    facts = ReceiptFacts(
        forge="github",
        repository="acme/shop",
        number=7,
        head="a" * 40,
        outcome="failed",
        reason=reason,
        skipped=[f"{path}: binary"],
        configuration=[path],
        config_notes=[reason],
        prompts=[reason],
        partial=reason,
        at=0.0,
    )
    check(check_summary(facts))
