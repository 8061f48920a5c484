"""A table as one test: every row runs, and all that fail are told at once. A share of a table.

pytest makes an item of each row of `parametrize`, which costs more than most rows do.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet

_LONGEST_NAME = 100
# What a row may fail with: `pytest.raises` that sees nothing raises what is no `Exception`.
_FAILURES = (Exception, pytest.fail.Exception)


def share(rows: Iterable[Any], *shared: Any) -> list[ParameterSet]:
    """Return all rows, for `pytest.mark.parametrize`: those of `shared` run in `make test`, the
    others in `make test-many` alone."""
    table = list(rows)
    assert all(one in table for one in shared), "a share is of its table"
    return [pytest.param(one, marks=() if one in shared else pytest.mark.many) for one in table]


def each_row(
    names: str | Sequence[str],
    table: Iterable[Any],
    ids: Iterable[object] | Callable[[Any], object] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what makes one test of a function that is called with each row.

    Written like `pytest.mark.parametrize`; two of them try each row of one with each of the other.
    It's for what is quick, has no state, and uses no fixture. The table is read when the test
    runs; one without rows fails, since it would prove nothing.
    """
    arguments = [one.strip() for one in names.split(",")] if isinstance(names, str) else [*names]

    @functools.cache
    def named() -> list[tuple[str, dict[str, Any]]]:
        found = [ParameterSet.extract_from(one, force_tuple=len(arguments) == 1) for one in table]
        assert found, "a table needs rows"
        assert not any(row.marks for row in found), "a row has no marks"
        given = ids if ids is None or callable(ids) else [*ids]
        return [
            (_name(at, row, given), dict(zip(arguments, row.values, strict=True)))
            for at, row in enumerate(found)
        ]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        assert not inspect.iscoroutinefunction(test), "only what doesn't wait is a table"

        @functools.wraps(test)
        def each(**others: Any) -> None:
            told: list[str] = []
            first: BaseException | None = None
            for name, row in named():
                try:
                    test(**row, **others)
                except _FAILURES as error:
                    told.append(_told(name, error))
                    first = first or error
            if told:
                lines = "\n".join(told)
                raise AssertionError(
                    f"{len(told)} of {len(named())} rows fail:\n{lines}"
                ) from first

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in arguments]
        each.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return each

    return decorate


def _name(at: int, row: ParameterSet, given: list[object] | Callable[[Any], object] | None) -> str:
    if isinstance(row.id, str):
        return row.id
    if callable(given):
        return "-".join(str(given(value)) for value in row.values)
    if given is not None:
        return str(given[at])
    text = ", ".join(map(repr, row.values))
    shown = text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"
    return f"{at}: {shown}"


def _told(name: str, error: BaseException) -> str:
    """The row, where in the test it failed, and what pytest says of the assertion."""
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[1] if len(frames) > 1 else frames[0]
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    said = str(error).replace("\n", "\n    ")
    return f"  [{name}] line {where.lineno}: {kind}{said}"
