"""Numbers that somebody else wrote, in a header for one. It decides only what is one: `isdigit`
alone takes `²` for it. Pure."""

# What every reader of JSON takes as it is.
MOST_DIGITS = 15


def whole_number(text: str, most_digits: int = MOST_DIGITS) -> int | None:
    """The number that a text is, None where it is none or longer."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most_digits else None
