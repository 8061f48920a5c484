"""The order of a review: what the supervisor says of a pull request besides its code.

Written by the supervisor (`core.orders` there). No secret is in it. Its texts are data,
whoever wrote them; only that the supervisor chose them says that they are told at all.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from agent_image.reviewer.text import Quarantine, plain


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A text, and where it comes from."""

    source: str
    text: str


class KnownRemark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of an earlier review that is open still. `line` 0: nowhere in the change."""

    id: str
    severity: str
    path: str
    line: int
    title: str
    quote: str = ""


class PromptOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One question of the repository's people about the change, in place of the review. `tools`:
    categories of `.reviewerc` that it may use."""

    id: str
    text: str
    tools: tuple[str, ...] = ()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`since`: the head that was reviewed before, where only what came after it is shown at first.
    `files`: what is to be reviewed; empty means all. `skills` and `guidance` are the repository's
    own, at the trusted revision; `notes` what other prompts found. `reasoning` and `temperature`:
    how the model is asked, empty where nobody said."""

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


def read_order(path: Path) -> Order:
    """Return the order in a file. `OSError` or `msgspec.DecodeError` where there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Order)


def told(order: Order, quarantine: Quarantine) -> Iterator[str]:
    """Yield the parts of the first message that an order adds."""
    if order.title or order.body:
        yield "What the author says of it:"
        yield quarantine.wrap("title and description", f"{order.title}\n\n{order.body}")
    for one in (*order.guidance, *order.skills):
        yield "What the repository's people ask reviews to look at:"
        yield quarantine.wrap(one.source, one.text)
    if order.checklist:
        yield "Check each of these, too:"
        yield quarantine.wrap("checklist", "\n".join(f"- {one}" for one in order.checklist))
    if order.strictness in _STRICTNESS:
        yield _STRICTNESS[order.strictness]
    for one in order.notes:
        yield "What another look at this change found; check it before you report it:"
        yield quarantine.wrap(one.source, one.text)
    if order.known:
        lines = [
            f"- {one.id} {one.severity} {plain(one.path)}:{one.line} {plain(one.title)}\n"
            f"  {plain(one.quote)}"
            for one in order.known
        ]
        yield (
            "Reported before and open still. Report one again only where you see it in the code,"
            " with the same path and quote; report nothing that undoes one of them:"
        )
        yield quarantine.wrap("open findings", "\n".join(lines))


_STRICTNESS = {
    "lenient": "Report only what breaks something or endangers somebody.",
    "strict": "Report small defects, too, as low ones.",
}
