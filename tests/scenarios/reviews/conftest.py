"""Stories of both forges: a test with the parameter `forge` runs on GitHub and on Bitbucket.

`make test` takes GitHub's, and Bitbucket's where a test is marked `on_both`; `make test-many` takes
all. `only_on(forge, why)` marks what the other one can't do; docs/reviews.md says so, too.
"""

import pytest

FORGES = ("github", "bitbucket")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "forge" not in metafunc.fixturenames:
        return
    only = metafunc.definition.get_closest_marker("only_on")
    is_short = metafunc.definition.get_closest_marker("on_both") is not None
    late = () if is_short else (pytest.mark.many,)
    metafunc.parametrize(
        "forge",
        [
            pytest.param(one, marks=() if one == "github" else late)
            for one in FORGES
            if only is None or one == only.args[0]
        ],
    )
