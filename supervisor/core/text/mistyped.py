"""Remedies for mistyped words."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a remedy for a mistyped word: the nearest known word, else all of them."""
    choices = list(known)
    found = difflib.get_close_matches(word.lower(), choices, 1, 0.6)
    return (
        f"did you mean `{found[0]}`?"
        if found
        else f"known are {', '.join(f'`{one}`' for one in choices)}"
    )
