"""How many examples a property test tries that can't take the usual number: its own, and as many
times that as the profile says.

A number that is written into a test holds for `make fuzz`, too, which then searches no longer
than `make test` does.
"""

from hypothesis import settings

USUAL = 100


def examples(number: int) -> int:
    """`number` by `make test`, in proportion by a longer search. The profile is loaded before
    the test modules are."""
    return number * (settings.default.max_examples if settings.default else USUAL) // USUAL
