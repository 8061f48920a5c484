"""Whether a text can be stored and sent: names of files and words of a command line may hold bytes
that aren't UTF-8."""


def is_text(text: str) -> bool:
    """Return whether there are only characters in it: no byte that Python keeps as half a surrogate
    pair."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
