"""Bytes that aren't UTF-8, as Python keeps them in names and words."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.text.utf8 import is_text


@pytest.mark.parametrize("text", ["", "plain", "ä → 日本", "\U0001f600"])
def test_characters_are_text(text: str) -> None:
    assert is_text(text)


@given(st.binary())
def test_what_python_reads_is_text_exactly_where_it_can_be_written(data: bytes) -> None:
    text = os.fsdecode(data)
    assert is_text(text) == (data.decode("utf-8", "replace").encode() == data)
