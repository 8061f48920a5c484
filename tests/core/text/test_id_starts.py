"""A start of an id means one thing alone."""

import pytest

from supervisor.core.text.id_starts import only_of
from supervisor.errors import UserError


def test_a_start_of_several_is_refused() -> None:
    with pytest.raises(UserError, match="start of several ids"):
        only_of("96d8", ["96d80", "96d81", "96e80"])
    assert only_of("96d8", ["96d80", "96e80"]) == "96d80"
    assert only_of("96d80", ["96d80", "96d801"]) == "96d80"
    assert only_of("ffff", ["96d80"]) == "ffff"
