"""TOML as it is read and written for plans."""

import tomllib

import pytest

from supervisor.core.packages.toml_text import MOST_CHARS, MOST_DOTS, read_toml, toml


def test_toml_is_read_as_it_was_written() -> None:
    data = {"a": 1, "b": [True, '"\\é\n'], "t": {"x.y": {"z": []}, "n": -1}}
    assert tomllib.loads(toml(data)) == data


@pytest.mark.parametrize(
    "text", ["x", "a" * (MOST_CHARS + 1), f"{'a.' * (MOST_DOTS + 1)}a = 1", "a = {" * 10]
)
def test_more_than_is_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_toml(text)


@pytest.mark.parametrize("value", [1.5, "\x7f", {"\x7f": 1}])
def test_what_no_manifest_holds_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="isn't taken over"):
        toml({"a": value})
