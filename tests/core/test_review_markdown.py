"""A review's words never become markup, whatever a model wrote or the reviewed code made it
write."""

from supervisor.core.review_markdown import in_message, plain, review_markdown
from tests.tables import each_row

REVIEW = {
    "model": "claude-test",
    "base": "main",
    "head": None,
    "summary": "add subtracts\nand more",
    "verdict": "request_changes",
    "findings": [
        {"path": "b.py", "line": None, "severity": "low", "title": "small", "body": "b",
         "suggestion": None},
        {"path": "src/app.py", "line": 2, "severity": "high", "title": "<b>wrong</b>",
         "body": "- for +", "suggestion": "```\na + b"},
    ],
    "usage": {"turns": 1, "input_tokens": 1, "output_tokens": 1},
}  # fmt: skip

MARKUP = {
    "an image": ("![x](a.png)", r"\!\[x\](a.png)"),
    "HTML": ("<img src=x onerror=y>", r"\<img src=x onerror=y\>"),
    "an entity": ("&lt;", r"\&lt;"),
    "a bare link": (
        "see https://evil.test and www.evil.test",
        r"see https\://evil.test and www\.evil.test",
    ),
    "a heading": ("# big\nunder\n===", "\\# big\nunder\n\\==="),
    "a list": ("- a\n  + b\n12. c", "\\- a\n\u00a0\u00a0\\+ b\n12\\. c"),
    "a fence": ("```sh\nx\n```", r"\`\`\`sh" + "\nx\n" + r"\`\`\`"),
    "code by indentation": ("    <b>", "\u00a0\u00a0\u00a0\u00a0\\<b\\>"),
    "a table": ("a|b\n:-|-", "a\\|b\n\\:-\\|-"),
    "an escape of its own": (r"\<b>", r"\\\<b\>"),
    "a deceptive direction": ("a\u202eb", r"a\\u{202e}b"),
}


@each_row(("text", "shown"), MARKUP.values(), ids=MARKUP)
def test_markup_stays_text(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_partial_review_says_so() -> None:
    assert "- Partial: no money" in review_markdown(REVIEW | {"partial": "no money"})
    assert "Partial" not in review_markdown(REVIEW | {"partial": ""})


def test_a_title_can_not_begin_a_line() -> None:
    assert "\n" not in plain("a\n# b\r\n\x1b[2J", one_line=True)


def test_the_document_has_the_worst_first_and_a_fence_that_holds() -> None:
    text = review_markdown(REVIEW)
    assert text.index("high: ") < text.index("low: ")
    assert "- Verdict: changes are requested" in text
    assert "src/app.py:2" in text
    assert "\\<b\\>wrong" in text
    assert "````\n```\na + b\n````" in text


def test_words_in_a_commit_s_message_are_no_commands_of_a_forge() -> None:
    said = in_message("[skip ci] ***NO_CI***, @jo: fixes #7 and GH-8; a, b")
    assert said == "(skip ci) * * *NO_CI* * *, @ jo: fixes # 7 and GH 8; a, b"
