"""Colours and Markdown come from a process that is ended where a text takes too long."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from supervisor.base import render_worker
from supervisor.base import renderer as module
from supervisor.base.renderer import MOST_CHARS, Colours, Renderer

CODE = 'x = """a\nb"""\ndef f(): pass\n'
# markdown-it-py takes a long time to sort out so many headings of tables.
SLOW = "|a|\n|-|\n" * 30_000


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    made = Renderer()
    yield made
    await made.stop()


def coloured(text: str, colours: Colours) -> list[list[tuple[str, str]]]:
    lines = []
    for line, pieces in zip(text.split("\n"), colours, strict=False):
        at, found = 0, []
        for length, word in pieces:
            found.append((line[at : at + length], word))
            at += length
        assert at == len(line)
        lines.append(found)
    return lines


async def test_a_string_over_two_lines_is_one(renderer: Renderer) -> None:
    found = coloured(CODE, await renderer.colours("src/a.py", CODE))
    assert [("b", "s2"), ('"""', "s2")] in found or [('b"""', "s2")] in found
    assert ("def", "k") in found[2]
    assert ("f", "nf") in found[2]


@pytest.mark.parametrize("path", ["a.unheard-of", "", "a\n.py\0", "x" * 5000])
async def test_what_tells_no_language_stays_plain(renderer: Renderer, path: str) -> None:
    assert list(await renderer.colours(path, CODE)) == []


async def test_lines_that_end_in_cr_lf_have_the_same_colours(renderer: Renderer) -> None:
    plain = await renderer.colours("a.py", CODE)
    assert await renderer.colours("a.py", CODE.replace("\n", "\r\n")) == plain


async def test_only_the_beginning_of_a_long_text_is_coloured(renderer: Renderer) -> None:
    lines = MOST_CHARS // 6
    found = await renderer.colours("a.py", "x = 1\n" * (2 * lines))
    assert 0 < len(found) <= lines + 2


async def test_odd_characters_end_nothing(renderer: Renderer) -> None:
    text = "x = '\ud800\0\u202e'\r\ny = 1\n"
    assert ("1", "mi") in coloured(
        text.replace("\r\n", "\n"), await renderer.colours("a.py", text)
    )[1]


async def test_what_takes_too_long_is_ended_and_the_next_text_is_served(renderer: Renderer) -> None:
    first, again = await renderer.prose(SLOW), await renderer.prose(SLOW)
    assert (first, again) == (None, None)
    assert await renderer.prose("*a*") == "<p><em>a</em></p>\n"


async def test_many_ask_at_once(renderer: Renderer) -> None:
    texts = [f"*{number}*" for number in range(20)]
    found = await asyncio.gather(*map(renderer.prose, texts))
    assert found == [f"<p><em>{number}</em></p>\n" for number in range(20)]


async def test_who_waits_behind_others_is_plain_for_now(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TURN_S", 0.05)
    async with renderer._turn:  # as if it were started, which takes its time
        first = asyncio.create_task(renderer.colours("first.py", CODE))
        await asyncio.sleep(0.2)
    assert await first
    async with renderer._turn, asyncio.timeout(5):
        assert list(await renderer.colours("a.py", CODE)) == []
        assert await renderer.prose("*a*") is None
        assert await renderer.colours("first.py", CODE)  # known: no turn is needed
    assert await renderer.colours("a.py", CODE)
    assert await renderer.prose("*a*") == "<p><em>a</em></p>\n"


async def test_what_is_kept_has_a_bound(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KEPT_BYTES", 100_000)
    for number in range(8):
        text = ("[1," * 100 + "\n") * 100 + str(number)
        assert await renderer.colours("a.json", text)
        assert renderer._kept_bytes == sum(map(len, renderer._kept.values()))
        assert renderer._kept_bytes <= 100_000 or len(renderer._kept) == 1
    assert 0 < len(renderer._kept) < 8


def test_the_pieces_of_a_text_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_worker, "MOST_PIECES", 1000)
    monkeypatch.setattr(render_worker, "_COLOURS_S", 2 * render_worker.CPU_S)  # no end by time
    for text in ("[1,\n" * 5000, "\n" * 5000):
        found = render_worker.colours("a.json", text)
        assert 500 < len(found) + sum(len(line) for line in found) // 2 <= 2 * 1000


async def test_a_cancelled_text_is_not_the_answer_to_the_next(renderer: Renderer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await renderer.prose("first")
    assert await renderer.prose("second") == "<p>second</p>\n"


async def test_markdown_loads_nothing_leads_nowhere_and_hides_no_address(
    renderer: Renderer,
) -> None:
    text = (
        "# head\n\n<script>alert(1)</script> [a](javascript:x) ![i](http://x/y.png)"
        " <http://x> http://y\n\n[foo]: http://z\n\n<!-- note -->\n\n- `code`\n\n|a|\n|-|\n|1|\n"
    )
    shown = await renderer.prose(text)
    assert shown is not None
    assert not any(one in shown for one in ("<a", "<img", "<script", "href", "src=", "<!--"))
    for address in ("javascript:x", "http://x/y.png", "&lt;http://x&gt;", "[foo]: http://z"):
        assert address in shown
    for kept in ("<h1>head</h1>", "<code>code</code>", "<td>1</td>", "&lt;!-- note --&gt;"):
        assert kept in shown


async def test_long_markdown_is_not_rendered(renderer: Renderer) -> None:
    assert await renderer.prose("a" * (MOST_CHARS + 1)) is None


def test_classes_are_the_style_sheets() -> None:
    """A class that Pygments has no token for would be a mistake of ours."""
    from pygments.token import STANDARD_TYPES

    assert set(STANDARD_TYPES.values()) >= render_worker.CLASSES
