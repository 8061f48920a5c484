"""A table runs every row, tells each that fails with what was expected, and is never empty."""

import pytest

from tests.tables import each_row


def failure(test: object) -> str:
    with pytest.raises(AssertionError) as caught:
        test()  # type: ignore[operator]
    return str(caught.value)


def test_every_row_runs_and_all_that_fail_are_told_by_name_with_expected_and_found() -> None:
    ran = []

    @each_row(("word", "length"), [("a", 1), ("bb", 3), ("ccc", 3), ("dddd", 5)], ids="wxyz")
    def checked(word: str, length: int) -> None:
        ran.append(word)
        assert len(word) == length

    told = failure(checked)
    assert ran == ["a", "bb", "ccc", "dddd"]
    assert told.startswith("2 of 4 rows fail:\n  [x] line ")
    assert "2 == 3" in told
    assert "  [z] line " in told
    assert "4 == 5" in told
    assert "[w]" not in told
    assert "[y]" not in told


def test_an_error_and_an_exception_that_does_not_come_fail_their_rows_alone() -> None:
    @each_row("text", ["1", "x", ""])
    def checked(text: str) -> None:
        if text:
            assert int(text)
        else:
            with pytest.raises(ValueError):
                int("1")

    told = failure(checked)
    assert "[1: 'x'] line " in told
    assert "ValueError: invalid literal" in told
    assert "[2: ''] line " in told
    assert "DID NOT RAISE" in told
    assert told.startswith("2 of 3")


def test_two_tables_try_each_row_with_each() -> None:
    ran = []

    @each_row("letter", "ab", ids=str.upper)
    @each_row("number", [pytest.param(1, id="one"), 2])
    def checked(letter: str, number: int) -> None:
        ran.append((letter, number))
        assert (letter, number) != ("b", 1)

    told = failure(checked)
    assert ran == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert "[B]" in told
    assert "[one]" in told


@each_row("number", [1, 2])
@pytest.mark.parametrize("word", ["a"])
def test_a_table_stands_beside_parameters_of_pytest(number: int, word: str) -> None:
    assert word * number in {"a", "aa"}


def test_a_table_without_rows_fails() -> None:
    @each_row("number", iter(()))
    def checked(number: int) -> None:
        pass

    assert "needs rows" in failure(checked)
