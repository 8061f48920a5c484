"""Prints an install for `gatehouse show`: packages, where they come from, and what not to overlook.

What is printed came from an agent and from a registry: each piece goes through `visible`.
"""

from typing import Any

import msgspec

from supervisor.core.actions import Packages
from supervisor.core.text.display import visible
from supervisor.server.common.install_words import install_words


def install_lines(action: dict[str, Any], now: float) -> list[str]:
    """Return the lines of an install's action, as the API tells it. `now` is in seconds since the
    epoch."""
    said = install_words(msgspec.convert(action, Packages), now)
    lines = [f"    ! {_one(note)}" for note in said.flags]
    lines.append(f"    {_one(said.summary)} {_one(said.source)}".rstrip())
    for row in said.rows:
        facts = f"  ({_one(row.facts)})" if row.facts else ""
        lines.append(f"      {_one(row.name)} {_one(row.change)}{facts}")
        lines += [f"        ! {_one(note)}" for note in row.notes]
    if said.unknown:
        lines.append(f"    unknown: {_one(said.unknown)}")
    return lines


def _one(text: str) -> str:
    return visible(text, one_line=True)
