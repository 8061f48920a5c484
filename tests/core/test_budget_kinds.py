"""Every kind of budget in every scope: sessions that ask in turns come to the limit and not one
step beyond it, and the refusal names it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.core.budget import KINDS, SCOPES, Kind, Over, Scope
from tests.ledger.test_spending import HAIKU
from tests.ledger.test_traffic import DAY_S, Ledger

# So that some steps fit, and one more wouldn't.
LIMITS: dict[Kind, str] = {"cost": "0.1usd", "tokens": "50001tokens", "requests": "11requests",
"bytes_out": "10007b"}  # fmt: skip
BYTES_EACH = 997


@pytest.fixture
def ledgers(tmp_path: Path) -> Iterator[list[Ledger]]:
    made: list[Ledger] = []
    yield made
    for one in made:
        one.close()


def step(ledger: Ledger, name: str, kind: Kind) -> Over | None:
    """Ask for one more: the limit that is in the way."""
    if kind in ("cost", "tokens"):
        reserved = ledger.spending.reserve(name, "h", HAIKU)
        assert isinstance(reserved, str | Over)
        return reserved if isinstance(reserved, Over) else None
    drawn = ledger.traffic.draw(name, kind, 1 if kind == "requests" else BYTES_EACH)
    return drawn if isinstance(drawn, Over) else None


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_in_no_scope_is_overrun(
    tmp_path: Path, ledgers: list[Ledger], kind: Kind, scope: Scope
) -> None:
    text = LIMITS[kind]
    ledger = Ledger(
        tmp_path, per_day=text if scope == "day" else "", total=text if scope == "total" else ""
    )
    ledgers.append(ledger)
    own = text if scope == "session" else ""
    ledger.with_budgets(own, own)
    names = ["one"] if scope == "session" else ["one", "two"]
    steps = 0
    while (over := step(ledger, names[steps % len(names)], kind)) is None:
        steps += 1
        assert steps < 1000
    assert steps > len(names)
    assert (over.scope, over.kind) == (scope, kind)
    for name in names:  # nobody is let through by asking again, or as the other
        refused = step(ledger, name, kind)
        assert refused is not None
        used = getattr(ledger.spending.standing(name).used[scope], kind)
        assert used <= over.limit
        assert used == refused.used
    if scope == "session":
        assert step(ledger, "two", kind) is None
    # Only a new day begins anew, and only the day's.
    ledger.clock.advance(DAY_S)
    assert (step(ledger, "one", kind) is None) == (scope == "day")


@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_forgets_nothing_of_it(tmp_path: Path, ledgers: list[Ledger], kind: Kind) -> None:
    for _ in range(2):
        ledger = Ledger(tmp_path, total=LIMITS[kind]).with_budgets()
        ledgers.append(ledger)
        steps = 0
        while step(ledger, "one", kind) is None:
            steps += 1
            assert steps < 1000
        assert bool(steps) == (len(ledgers) == 1)
