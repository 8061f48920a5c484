"""Colours code and renders Markdown in a process that `renderer` can end.

The text is an agent's, and an expression of Pygments or a rule of markdown-it may take long over
it, so the kernel ends this process once a text has taken `CPU_S`. Reads and writes msgpack, each
behind its length. It must never render markup that loads or leads anywhere.
"""

import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec

CPU_S = 1.0
# A text's colours end here; what follows stays plain. Below `CPU_S`, so that most texts keep some.
_COLOURS_S = 0.3
# So do those of a text of more pieces, each of which takes a tuple's memory.
MOST_PIECES = 100_000
_MEMORY_BYTES = 1 << 30
_LENGTH_BYTES = 4
_MOST_NESTING = 20
# Short class names of Pygments that the style sheet knows; the others look like plain text.
CLASSES = frozenset(
    {
        *("k", "kn", "kd", "kr", "ow", "kc", "nt"),
        *("s", "s1", "s2", "sb", "sd", "se", "sx", "sa", "si"),
        *("m", "mi", "mf", "il", "mh", "nf", "fm", "nc", "nn", "kt", "nb", "bp", "na"),
        *("c", "c1", "cm", "ch"),
    }
)
_TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "hr", "br"),
    *("em", "strong", "s", "code", "pre", "table", "thead", "tbody", "tr", "th", "td"),
}
# Links, images and definitions stay as they are written: nothing loads, and no address is hidden.
_RULES = ("image", "link", "autolink", "html_inline", "html_block", "reference", "entity")


def colours(name: str, text: str) -> list[list[Any]]:
    """Return for each line the lengths and classes of its tokens in turn, by the file's name; empty
    for a name that tells no language."""
    from pygments.lexers import get_lexer_for_filename
    from pygments.token import STANDARD_TYPES
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_for_filename(name)
    except ClassNotFound:
        return []
    lines: list[list[Any]] = [[]]
    pieces = 0
    for _, kind, value in lexer.get_tokens_unprocessed(text):
        word = STANDARD_TYPES.get(kind) or STANDARD_TYPES.get(kind.parent, "")
        for at, piece in enumerate(value.split("\n")):
            if at:
                lines.append([])
            _append(lines[-1], len(piece), word if word in CLASSES else "")
            pieces += 1
            if pieces == MOST_PIECES:
                return lines
        if signal.getitimer(signal.ITIMER_VIRTUAL)[0] < CPU_S - _COLOURS_S:
            break
    return lines


def _append(line: list[Any], length: int, word: str) -> None:
    if not length:
        return
    if line and line[-1] == word:
        line[-2] += length
    else:
        line += [length, word]


def prose(_name: str, text: str) -> str:
    """Return Markdown as HTML of a few tags without attributes."""
    import nh3
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": _MOST_NESTING})
    reader.enable(["table", "strikethrough"]).disable(list(_RULES))
    return nh3.clean(reader.render(text), tags=_TAGS, attributes={}, link_rel=None)


_KINDS: dict[str, Callable[[str, str], object]] = {"code": colours, "prose": prose}


def _requests(source: IO[bytes]) -> Iterator[tuple[str, str, str]]:
    while len(head := source.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        kind, name, text = msgspec.msgpack.decode(source.read(int.from_bytes(head)))
        yield kind, name, text


def main() -> None:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    for kind, name, text in _requests(sys.stdin.buffer):
        # INVARIANT: SIGVTALRM is never caught, so it ends even an expression that doesn't return.
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
        answer = msgspec.msgpack.encode(_KINDS[kind](name, text))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        sys.stdout.buffer.write(len(answer).to_bytes(_LENGTH_BYTES) + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
