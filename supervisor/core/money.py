"""Money as whole pico-dollars, never a float: conversion and display."""

from decimal import Decimal

# In picodollars, the ledger's unit.
PICOUSD = 10**12
MICROUSD = PICOUSD // 10**6


def microusd(picousd: int) -> int:
    """Return millionths of a dollar, rounded up."""
    return -(-picousd // MICROUSD)


def dollars(picousd: int) -> str:
    """Return an amount for people: in cents, and finer below a dollar."""
    places = 2 if abs(picousd) >= PICOUSD or picousd == 0 else 4
    amount = Decimal(picousd).scaleb(-12)
    if 0 < abs(picousd) < PICOUSD // 10**4:
        places = 6
    return f"${amount:.{places}f}"
