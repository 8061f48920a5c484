"""What the next job of a workflow has to know of a pull request, as a mark in our check's text.

Pure. A workflow's job has no database of an earlier one. Only who may write checks can write the
mark, and it has no words of anybody else but in its findings.
"""

import re
import zlib
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.reviews.core.tracking import TrackedFinding

# GitHub takes 65,535 characters of a check's text.
MOST_CHARS, MOST_MARK_CHARS = 65_000, 40_000
_MOST_BYTES = 4 * 1024 * 1024
_MARK = re.compile(r"<!-- gatehouse:kept:([0-9a-f]+) -->\s*\Z")


class KeptRounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a pull request's rounds. `head`: the last reviewed one, "" for none; `base`, its
    `base_ref`, `outcome`, `partial` and `skipped`: of that review; `cost`: of all, in pico-dollars;
    `receipt`: the text of the newest receipt, for the commit `receipt_head`."""

    rounds: int = 0
    head: str = ""
    base: str = ""
    base_ref: str = ""
    outcome: str = ""
    partial: str = ""
    skipped: tuple[str, ...] = ()
    paused_by: str = ""
    was_called: bool = False
    cost: int = 0
    receipt: str = ""
    receipt_head: str = ""
    findings: tuple[TrackedFinding, ...] = ()


def kept_mark(kept: KeptRounds) -> str:
    """Return the mark. If it would be too long, findings lose their texts, and then those that are
    gone are left out."""
    short = tuple(_short(one) for one in kept.findings)
    open_ = tuple(one for one in short if one.state not in ("fixed", "stale"))
    for findings in (kept.findings, short, open_, open_[:100]):
        # What looks like a secret would be seen by nobody in here. Hexadecimal, since no token
        # looks like it.
        text = without_tokens(msgspec.json.encode(replace(kept, findings=findings)).decode())
        mark = f"<!-- gatehouse:kept:{zlib.compress(text.encode(), 9).hex()} -->"
        if len(mark) <= MOST_MARK_CHARS:
            return mark
    return ""


def with_mark(text: str, mark: str) -> str:
    """Return a check's text with the mark at its end, if both have room."""
    return f"{text}\n\n{mark}" if mark and len(text) + len(mark) < MOST_CHARS else text


def mark_of(text: str) -> str:
    """Return the mark at a text's end; "" for none."""
    found = _MARK.search(text)
    return found[0].strip() if found else ""


def with_posted(kept: KeptRounds, shown: Sequence[TrackedFinding]) -> KeptRounds:
    """Return the same with the findings whose comments are on the pull request as posted, also if
    a job ended before it kept that. `shown` are these, by their short ids."""
    ids = {one.id for one in shown}
    known = tuple(_posted(one, ids) for one in kept.findings)
    short = {one.id[:8] for one in known}
    new = {one.id: one for one in shown if one.id not in short}
    return replace(kept, findings=(*known, *new.values()))


def read_kept(text: str) -> KeptRounds | None:
    """Return what the mark in a check's text says; None if there is none."""
    found = _MARK.search(text)
    if found is None:
        return None
    try:
        data = zlib.decompressobj().decompress(bytes.fromhex(found[1]), _MOST_BYTES)
        return msgspec.json.decode(data, type=KeptRounds)
    except (ValueError, zlib.error):
        return None


def _posted(one: TrackedFinding, posted: Collection[str]) -> TrackedFinding:
    if one.is_posted or one.id[:8] not in posted:
        return one
    return replace(one, is_posted=True, state="open" if one.state == "new" else one.state)


def _short(one: TrackedFinding) -> TrackedFinding:
    return replace(one, finding=replace(one.finding, body=one.finding.title, suggestion=None))
