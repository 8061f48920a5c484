"""A finding of `gatehouse doctor`: a need, whether it is met, and a remedy."""

from typing import NamedTuple


class CheckResult(NamedTuple):
    """One finding. `remedy` says what to do where `ok` is False; if `needed` is False it is only
    advice. A named tuple, so that doctor starts quickly."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = True


def bad(name: str, detail: str, remedy: str, *, needed: bool = True) -> CheckResult:
    """Return the finding of a need that isn't met."""
    return CheckResult(name, ok=False, detail=detail, remedy=remedy, needed=needed)
