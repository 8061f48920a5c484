"""Amounts of money as people read them."""

import pytest

from supervisor.core.money import PICOUSD, dollars, microusd


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (5 * PICOUSD, "$5.00"),
        (PICOUSD // 4, "$0.2500"),
        (PICOUSD // 10**5, "$0.000010"),
        (1234567 * PICOUSD // 1000, "$1234.57"),
    ],
)
def test_amounts_for_people(amount: int, text: str) -> None:
    assert dollars(amount) == text


@pytest.mark.parametrize(
    ("amount", "micro"), [(0, 0), (1, 1), (10**6, 1), (10**6 + 1, 2), (PICOUSD, 10**6)]
)
def test_millionths_are_never_too_few(amount: int, micro: int) -> None:
    assert microusd(amount) == micro
