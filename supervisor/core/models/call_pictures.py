"""Pictures in the body of a model call: which are in it, and how many of its bytes are theirs.

It is apart from `call_bodies.py`, because a picture is what a body says twice: its base64 is
long, and counts as few tokens whatever its length. It must never take words for a picture: the
bytes are only left out of account where the API reads no words. Sources: the pages on vision of
Anthropic and OpenAI.
"""

import re
from typing import Any

from supervisor.core.models.model_calls import Api

# Parts that are pictures at OpenAI's APIs, in the body or anywhere else.
_OPENAI_TYPES = ("image_url", "input_image", "computer_screenshot")
# What both vendors take. Of any other kind, a drawing of lines for one, nobody knows what is made
# of it.
_INLINE = re.compile(r"data:image/(?:png|jpe?g|gif|webp);base64,")


def is_openai_picture(part: dict[str, Any]) -> bool:
    """Whether a part is a picture as OpenAI's APIs take it."""
    return part.get("type") in _OPENAI_TYPES


def inline_picture(part: dict[str, Any]) -> str:
    """The picture that such a part holds; empty where it stands somewhere else."""
    link = part.get("image_url")
    address = link.get("url") if isinstance(link, dict) else link
    is_inline = isinstance(address, str) and part.get("file_id") is None and _INLINE.match(address)
    return str(address) if is_inline else ""


def picture_bytes(api: Api, root: dict[str, Any]) -> int:
    """How many bytes of a body are pictures that stand where its API reads one; in the arguments
    of a tool the same bytes are words."""
    if api == "messages":
        contents = [_parts(message.get("content")) for message in _parts(root.get("messages"))]
        # What a tool gave may have pictures in it, too.
        contents += [_parts(part.get("content")) for parts in contents for part in parts if part.get("type") == "tool_result"]  # fmt: skip  # noqa: E501
        return sum(len(_anthropic_picture(part)) for parts in contents for part in parts)
    if api == "chat":
        contents = [_parts(message.get("content")) for message in _parts(root.get("messages"))]
    elif api == "responses":
        # What was said is in the one, what a tool gave in the other.
        contents = [
            _parts(item.get(key))
            for item in _parts(root.get("input"))
            for key in ("content", "output")
        ]
    else:
        contents = []
    return sum(
        len(inline_picture(part)) for parts in contents for part in parts if is_openai_picture(part)
    )


def _parts(value: object) -> list[dict[str, Any]]:
    listed = value if isinstance(value, list) else [value]
    return [part for part in listed if isinstance(part, dict)]


def _anthropic_picture(part: dict[str, Any]) -> str:
    """The picture that a part is, as base64; empty where it is none."""
    source = part.get("source")
    if (
        part.get("type") != "image"
        or not isinstance(source, dict)
        or source.get("type") != "base64"
    ):
        return ""
    data = source.get("data")
    return data if isinstance(data, str) else ""
