"""Check whether new content adds a secret (hazard `secret`).

No rule allows that hazard. Three parts ask for changes of content: the comparison, the agent's API,
and partial answers. Each must report the same hazard for the same two contents, or an earlier
denial would not be found. It must never keep a secret.
"""

from supervisor.core.files.content_flags import flags_of
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import GatehouseError
from supervisor.workspace.disk.scan import read_file
from supervisor.workspace.trees.trees import Sides

HAZARD = "secret"
# Longest text to search. A longer one counts as if it held a secret.
MOST_SEARCHED_BYTES = 8 << 20
_BEGINNING_BYTES = 8192


def hazards_with(
    hazards: tuple[str, ...], old: bytes, new: bytes, redactor: Redactor
) -> tuple[str, ...]:
    """Return a change's hazards, with `secret` if its new content adds one."""
    rest = tuple(hazard for hazard in hazards if hazard != HAZARD)
    return (*rest, HAZARD) if _holds_new(old, new, redactor) else rest


def hazards_of_kept(
    sides: Sides, name: str, hazards: tuple[str, ...], after: str | None, redactor: Redactor
) -> tuple[str, ...]:
    """Return a change's hazards, where the new content is a snapshot and the old one is on the
    host. Blocking: call it in a thread."""
    new = sides.blobs.read(after or "", MOST_SEARCHED_BYTES)
    if new is None or not _holds_new(b"", new, redactor):
        return tuple(hazard for hazard in hazards if hazard != HAZARD)
    try:
        old = read_file(sides.host, name, MOST_SEARCHED_BYTES)
    except (OSError, GatehouseError):
        old = b""  # nothing there, or nothing that tells: what is found counts as new
    return hazards_with(hazards, old, new, redactor)


def _holds_new(old: bytes, new: bytes, redactor: Redactor) -> bool:
    if b"\0" in new[:_BEGINNING_BYTES]:
        return False
    if len(new) > MOST_SEARCHED_BYTES:
        return True
    text = new.decode(errors="replace")
    return redactor.text(text) != text and bool(flags_of(old, new, redactor).secret)
