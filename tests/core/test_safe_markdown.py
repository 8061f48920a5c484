"""What of a model's Markdown stays, shown by another reader of Markdown: code, lists and emphasis,
and never a link, an image, HTML or a mention."""

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from supervisor.core.review_markdown import parted
from supervisor.core.safe_markdown import code_span, fitted, safe, safe_line
from supervisor.core.text.display import visible
from tests.tables import each_row

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
KEPT = {
    *{"paragraph", "bullet_list", "ordered_list", "list_item", "strong", "em"},
    *{"inline", "text", "softbreak", "code_inline", "fence"},
}
# What GitHub finds in text after it was rendered.
MENTION = re.compile(r"[@\uff20][\w-]|#[0-9]|\bGH-[0-9]", re.IGNORECASE)
BARE = re.compile(r"(?:https?|ftp|mailto|xmpp):|www\.", re.IGNORECASE)
# A run of text, or of code in it, as CommonMark 6.1 has it.
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
PIECES = [
    *("`", "``", "```", "~~~", "\n```\n", "\n~~~\n", "  ```\n", "```py\n", "*", "**", "***"),
    *("![", "](", ")", "(", "[x]: ", "<img src=x>", "<!--", "-->", "<https://e.t>", "&lt;"),
    *("@ada", "@acme/all", "#1", "GH-1", "\n/lgtm", "\n", "\n\n", "\r\n", "\r", "    ", "\t"),
    *("# ", "> ", "- ", "* ", "+ ", "\n- ", "\n  - ", "\n    * ", "\n1. ", "\n2. ", "\n  1) "),
    *("1. ", "07. ", "\n7. ", "|", "\n|-|\n", "___", "\\", "---", "===", "~~", "_x_", "$", "$x$"),
    *("_http://e.t", "1https://e.t", "www.e.t", "a@b.t", "https:", "//e.t", "\u2028", "\u202e"),
    *("x", "y z", " ", ".", ":", "'", '"', "**b**", "*i*", "`c`", "``c`d``", "- [ ] t"),
]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)


def tokens(markdown: str) -> Iterator[Token]:
    for one in READER.parse(markdown):
        yield one
        yield from one.children or ()


def letters(text: str) -> str:
    """What is left of a text without the signs that make lists, code and emphasis."""
    return re.sub(r"[\s\u00a0`*~+\-.)0-9]", "", text)


def check(text: str, markdown: str) -> None:
    found = list(tokens(markdown))
    kinds = {re.sub("_(open|close)$", "", one.type) for one in found}
    assert kinds <= KEPT, (kinds - KEPT, text, markdown)
    for one in found:
        if one.type == "text":
            assert not MENTION.search(one.content), (text, markdown)
        if one.type == "inline":
            outside = CODE.sub(".", re.sub(r"\\([\\`])", ".", one.content))
            assert not BARE.search(outside), (text, markdown)
    shown = [one.content for one in found if one.type in ("text", "code_inline")]
    shown += [f"{one.info}{one.content}" for one in found if one.type == "fence"]
    expected = letters(parted(visible(text.replace("\r\n", "\n"))))
    assert sorted(letters("".join(shown))) == sorted(expected), (text, markdown)


@given(TEXTS | st.text())
def test_whatever_a_text_holds_nothing_in_it_is_live_and_nothing_is_lost(text: str) -> None:
    check(text, safe(text))


@given(TEXTS | st.text())
def test_a_line_has_its_code_and_nothing_else(text: str) -> None:
    found = safe_line(text)
    assert "\n" not in found
    kinds = {one.type for one in tokens(f"**high: {found}.** `ab`")}
    assert kinds <= {
        *{"paragraph_open", "paragraph_close", "inline", "text", "code_inline"},
        *{"strong_open", "strong_close"},
    }


@given(st.text(alphabet="` ab", min_size=1))
def test_code_reads_as_it_was(text: str) -> None:
    found = [one.content for one in tokens(code_span(text)) if one.type == "code_inline"]
    assert found == ([text] if text.strip() else [])


@given(TEXTS, st.integers(20, 200))
def test_what_is_cut_is_whole_markdown(text: str, most_chars: int) -> None:
    found = fitted(text * 5, most_chars)
    assert len(found) <= most_chars
    kinds = {re.sub("_(open|close)$", "", one.type) for one in tokens(found)}
    assert kinds <= KEPT


def html(text: str) -> str:
    return READER.render(safe(text)).replace("\n", "")


SHOWN = {
    "code": ("`number` is `0 or 1=1`", "<p><code>number</code> is <code>0 or 1=1</code></p>"),
    "code with backticks": ("``a`b``", "<p><code>a`b</code></p>"),
    "code that ends in one": ("`` a` ``", "<p><code>a`</code></p>"),
    "a decorator": ("`@app.get` of @ada", "<p><code>@app.get</code> of @ ada</p>"),
    "code that is all blank": ("`  `", "<p>`  `</p>"),
    "an open run": ("a ` b `` c", "<p>a ` b `` c</p>"),
    "mathematics": ("$`x`$ $`x`", "<p>$`x`$ $`x`</p>"),
    "strong and em": ("**a b** *c*, (**d**).",
        "<p><strong>a b</strong> <em>c</em>, (<strong>d</strong>).</p>"),
    "code in strong": ("**the `x`**:", "<p><strong>the <code>x</code></strong>:</p>"),
    "arguments": ("f(*args, **kwargs) 2*3*4", "<p>f(*args, **kwargs) 2*3*4</p>"),
    "stars of no pair": ("*a **b* c* d*", "<p>*a **b* c* d*</p>"),
    "a bullet list": ("- a\n- b\n  - c\n- d",
        "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
    "a numbered one": ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    "numbers that don't follow": ("1. a\n7. b", "<ol><li>a7. b</li></ol>"),
    "a number with a zero": ("07. a", "<p>07. a</p>"),
    "a list after text": ("so:\n2. a", '<p>so:</p><ol start="2"><li>a</li></ol>'),
    "both kinds": ("- a\n1. b", "<ul><li>a</li></ul><ol><li>b</li></ol>"),
    "numbers below": ("- a\n  2. b", '<ul><li><p>a</p><ol start="2"><li>b</li></ol></li></ul>'),
    "an item with a paragraph": ("- a\n\n  b\n\nc", "<ul><li><p>a</p><p>b</p></li></ul><p>c</p>"),
    "an item with code": ("1. a\n   ```py\n   x\n\n   y\n   ```\n2. b",
        '<ol><li>a<pre><code class="language-py">xy</code></pre></li><li>b</li></ol>'),
    "code after a list": ("- a\n```\nx\n```", "<ul><li>a</li></ul><pre><code>x</code></pre>"),
    "a task": ("- [x] a", "<ul><li>[x] a</li></ul>"),
    "an empty item": ("a\n-\n- ", "<p>a--</p>"),
    "a suggestion": ("```suggestion\nrm -rf /\n```", "<pre><code>rm -rf /</code></pre>"),
    "a diagram": ("~~~ mermaid\nx\n~~~", "<pre><code>x</code></pre>"),
    "a block with a fence": ("~~~\n```\n~~~\nb", "<pre><code>```</code></pre><p>b</p>"),
    "an open block": ("```\n<b>", "<pre><code>&lt;b&gt;</code></pre>"),
    "a link": ("[a](https://e.t) ![b](c)", "<p>[a](https://e.t) ![b](c)</p>"),
    "HTML": ("<a href=x>b</a> &lt;", "<p>&lt;a href=x&gt;b&lt;/a&gt; &amp;lt;</p>"),
    "a heading": ("# a\nb\n---", "<p># ab---</p>"),
}  # fmt: skip


@each_row(("text", "shown"), SHOWN.values(), ids=SHOWN)
def test_what_stays_and_what_is_text(text: str, shown: str) -> None:
    assert html(text) == shown


def test_the_deepest_lists_are_shown_at_one_level() -> None:
    deep = "".join(f"{'  ' * level}- {level}\n" for level in range(9))
    assert html(deep).count("<ul>") == 4
    assert html(deep).count("<li>") == 9
    assert html("- a\n  - b\n    - c\n- d").endswith("</ul></li><li>d</li></ul>")
