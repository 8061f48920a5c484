"""The order of a review: what its reader is told about a pull request besides the code.

Pure. `agent_image/reviewer/orders.py` reads it. It holds no secret, because it lies in the
sandbox's home.
"""

import msgspec

MOST_KNOWN = 50
MOST_TEXT_CHARS = 20_000
# The limit for all texts together.
MOST_CHARS = 200_000
MOST_FILES = 2_000


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A text for the reader, and its source."""

    source: str
    text: str


class KnownRemark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of an earlier round that is still open."""

    id: str
    severity: str
    path: str
    line: int
    title: str
    quote: str = ""


class PromptOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt of `.reviewerc` that replaces the review. `tools`: the categories that it may
    use."""

    id: str
    text: str
    tools: tuple[str, ...] = ()


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An order. `since`: the head that was reviewed before, "" if the whole change is shown.
    `files`: the files to review; empty means all. `reasoning` and `temperature`: how to call the
    model, empty if not given."""

    title: str = ""
    body: str = ""
    since: str = ""
    files: tuple[str, ...] = ()
    known: tuple[KnownRemark, ...] = ()
    guidance: tuple[Told, ...] = ()
    skills: tuple[Told, ...] = ()
    checklist: tuple[str, ...] = ()
    strictness: str = ""
    notes: tuple[Told, ...] = ()
    prompt: PromptOrder | None = None
    reasoning: str = ""
    temperature: float | None = None


def order_text(order: Order) -> str:
    """Return the order as text for the reader, with its texts cut to the reader's limits."""
    room = MOST_CHARS
    cut: dict[str, tuple[Told, ...]] = {}
    for name in ("guidance", "skills", "notes"):
        kept = []
        for one in getattr(order, name):
            text = one.text[: min(MOST_TEXT_CHARS, room)]
            room -= len(text)
            if text:
                note = "" if text == one.text else "\n[cut here]"
                kept.append(Told(source=one.source, text=text + note))
        cut[name] = tuple(kept)
    kept_files = order.files if len(order.files) <= MOST_FILES else ()
    short = msgspec.structs.replace(
        order,
        title=order.title[:1_000],
        body=order.body[:MOST_TEXT_CHARS],
        files=kept_files,
        known=order.known[:MOST_KNOWN],
        **cut,
    )
    return msgspec.json.encode(short).decode()
