"""Pictures in the bodies of calls: their bytes are no words, and words are never taken for a
picture."""

from typing import Any

import pytest

from supervisor.core.models.model_calls import Api
from tests.core.models.test_call_bodies import read

PNG = "data:image/png;base64,AAAA"


def test_pictures_and_pages_are_more_than_their_bytes() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "x"},
    }
    pages = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "x"},
    }
    ours = {"image": {"format": "png", "source": {"bytes": "x"}}}
    assert (
        read("messages", {"model": "m", "messages": [{"content": [picture, picture]}]}).pictures
        == 2
    )
    assert read("converse", {"messages": [{"content": [ours]}]}).pictures == 1
    assert not read("messages", {"model": "m", "messages": [{"content": [picture]}]}).beyond_body
    assert read("messages", {"model": "m", "messages": [{"content": [pages]}]}).beyond_body
    assert read(
        "converse", {"messages": [{"content": [{"document": {"source": {"bytes": "x"}}}]}]}
    ).beyond_body


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("chat", {"messages": [{"content": [{"type": "image_url", "image_url": {"url": PNG}}]}]}),
        ("responses", {"input": [{"content": [{"type": "input_image", "image_url": PNG}]}]}),
        ("responses", {"input": [{"output": [{"type": "input_image", "image_url": PNG}]}]}),
        ("responses", {"input": [{"output": {"type": "computer_screenshot", "image_url": PNG}}]}),
    ],
)
def test_the_bytes_of_a_picture_are_no_words(api: Api, body: dict[str, Any]) -> None:
    found = read(api, {"model": "m", **body})
    assert (found.pictures, found.picture_bytes, found.beyond_body) == (1, len(PNG), False)


def test_the_bytes_of_a_picture_are_words_where_the_api_reads_words() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    shown = {"type": "tool_result", "content": [picture, {"type": "image", "source": "x"}]}
    assert (
        read("messages", {"model": "m", "messages": [{"content": [picture, shown]}]}).picture_bytes
        == 8
    )
    for part in (
        {"type": "tool_use", "input": picture},
        {"type": "text", "content": [picture]},
        picture | {"source": {"type": "text", "data": "AAAA"}},
        picture | {"source": {"type": "base64", "media_type": "image/png", "data": 1}},
    ):
        assert (
            read("messages", {"model": "m", "messages": [{"content": [part]}]}).picture_bytes == 0
        )
    inline = {"type": "input_image", "image_url": PNG}
    for body in (
        {"input": [{"content": [{"type": "input_text", "image_url": PNG}]}]},
        {"input": [{"arguments": [inline]}]},
        {"messages": [{"content": [inline]}]},
        {"input": "x"},
    ):
        assert read("responses", {"model": "m", **body}).picture_bytes == 0
    assert read("converse", {"messages": [{"content": [picture]}]}).picture_bytes == 0
