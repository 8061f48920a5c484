"""What of a text is a whole number."""

from pathlib import Path

import pytest

import supervisor
from supervisor.core.text.numbers import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("17", 17),
        ("9" * 15, 10**15 - 1),
        ("9" * 16, None),
        ("", None),
        ("²", None),
        ("-1", None),
        ("1 ", None),
    ],
)
def test_a_number_is_digits_and_not_too_many(text: str, number: int | None) -> None:
    assert whole_number(text) == number


def test_how_many_is_for_the_caller_to_say() -> None:
    assert (whole_number("123", 2), whole_number("123", 3)) == (None, 123)


def test_nobody_else_takes_digits_for_a_number() -> None:
    """`"²".isdigit()` is true, and `int("²")` an error."""
    # The kernel's own names, the end of an address, and a descriptor that stays text.
    known = {"core/text/numbers.py", "core/text/hosts.py", "core/shell/shell_outline.py"}
    folder = Path(supervisor.__file__).parent
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if ".isdigit()" in path.read_text()
    }
    assert found == known
