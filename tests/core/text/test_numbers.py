"""What of a text is a whole number."""

import pytest

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
