"""Remarks on lines of a change that go to the agent with a denial.

Pure. They become lines of the denial's reason, so the agent reads them wherever it reads that: API,
MCP and command line alike. It must never cut a remark: what is too long is refused.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from supervisor.core.text.display import visible
from supervisor.errors import UserError

# As much of a reason as is kept with an answer.
MOST_REASON_CHARS = 2000
MOST_COMMENTS = 50


class LineComment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A remark on a line of the new file; `is_old`: on a removed line, by its number before."""

    line: Annotated[int, msgspec.Meta(ge=1)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_REASON_CHARS)]
    is_old: bool = False


type LineComments = Annotated[list[LineComment], msgspec.Meta(max_length=MOST_COMMENTS)]
_READER = msgspec.json.Decoder(LineComments)
_SET_READER = msgspec.json.Decoder(dict[str, LineComments])


def read_comments(text: str) -> list[LineComment]:
    """Parse comments as a page sends them; none in an empty text. Raise `UserError` for others."""
    return _decoded(_READER, text) if text else []


def read_set_comments(text: str) -> dict[str, list[LineComment]]:
    """Parse the same of several requests, by their ids."""
    return _decoded(_SET_READER, text) if text else {}


def _decoded[T](reader: msgspec.json.Decoder[T], text: str) -> T:
    try:
        return reader.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise UserError(f"these comments can't be read: {error}", "reload the page") from error


def reason_with(reason: str, path: str, comments: Sequence[LineComment]) -> str:
    """Return the reason with a line `path:line: text` for each remark, in the order of the lines.
    Raise `UserError` where that is longer than a reason may be."""
    said = [reason] if reason else []
    for one in sorted(comments, key=lambda one: (one.line, not one.is_old)):
        place = f"{visible(path, one_line=True)}:{one.line}{' before' if one.is_old else ''}"
        said.append(f"{place}: {' '.join(one.text.split())}")
    whole = "\n".join(said)
    if len(whole) > MOST_REASON_CHARS:
        raise UserError(
            f"your comments have {len(whole):,} characters together, with the reason",
            f"shorten them to {MOST_REASON_CHARS:,}",
        )
    return whole
