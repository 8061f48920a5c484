"""Parse numbers from outside, such as those in a header.

Pure. `isdigit` alone takes `²` for a number.
"""

# Numbers that every JSON reader reads alike.
MOST_DIGITS = 15


def whole_number(text: str, most_digits: int = MOST_DIGITS) -> int | None:
    """Return the number in a text; None if it isn't a number or is too long."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most_digits else None
