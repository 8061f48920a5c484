"""People of a forge, as one text each.

Pure. GitHub has a login, which is one person's alone. At Bitbucket anybody may take another's
nickname, so a person is `NAME {UUID}`: the id counts, the name is for people.
"""

import re
from collections.abc import Mapping
from typing import Any

from supervisor.core.text.display import visible

NOBODY = "ghost"
_MOST_NAME_CHARS = 100
_ID = re.compile(r" (\{[0-9a-fA-F-]{36}\})\Z")


def person(user: Mapping[str, Any]) -> str:
    """Return a person from Bitbucket's JSON."""
    said = str(user.get("nickname") or user.get("display_name") or "")[:_MOST_NAME_CHARS]
    shown = visible(said, one_line=True).replace("{", "").replace("}", "")
    plain = " ".join(shown.split())[:_MOST_NAME_CHARS]
    found = _ID.match(f" {user.get('uuid')}")
    return f"{plain or 'somebody'} {found[1].lower()}" if found else NOBODY


def person_name(text: str) -> str:
    """Return a person's name, without the id."""
    return _ID.sub("", text)


def person_id(text: str) -> str:
    """Return a person's id; "" for one that has a login alone."""
    found = _ID.search(text)
    return found[1] if found else ""


def is_same_person(one: str, other: str) -> bool:
    """Return whether both are one person, whatever name that has by now."""
    return one == other or (bool(person_id(one)) and person_id(one) == person_id(other))
