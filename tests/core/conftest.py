"""Coverage is measured of what reaches branches; what is marked `untraced` runs without it.

`no_cover` of pytest-cov stops nothing in a worker: the measure that pytest-cov began before it
knew that it is in one goes on.
"""

import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("untraced") is None:
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
