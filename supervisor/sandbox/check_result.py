"""Finding of `gatehouse doctor`: a need, whether it is met, and a remedy."""

from typing import NamedTuple


class CheckResult(NamedTuple):
    """`remedy` says what to do where `ok` is False; `needed` False is advice only. A named
    tuple, so that doctor starts at once."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


def bad(name: str, detail: str, remedy: str, *, needed: bool = True) -> CheckResult:
    """A need that isn't met."""
    return CheckResult(name, ok=False, detail=detail, remedy=remedy, needed=needed)
