"""Whether a text can be stored and sent.

Names of files and words of a command line may hold bytes that aren't UTF-8.
"""


def is_text(text: str) -> bool:
    """Return whether the text holds only characters: no byte that Python represents as half a
    surrogate pair."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
