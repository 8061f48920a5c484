"""Pictures in the body of a model call, and their share of its bytes.

It is separate from `call_bodies.py`, because a picture's base64 is long, and counts as few tokens
whatever its length. It must never take words for a picture: bytes are left out of account only
where the API reads no words. Sources: the pages on vision of Anthropic and OpenAI.
"""

import re
from typing import Any

from supervisor.core.models.model_calls import Api

# Parts that are pictures at OpenAI's APIs, in the body or anywhere else.
_OPENAI_TYPES = ("image_url", "input_image", "computer_screenshot")
# Formats that both vendors take. How others are read (a vector drawing, say) is unknown.
_INLINE = re.compile(r"data:image/(?:png|jpe?g|gif|webp);base64,")


def is_openai_picture(part: dict[str, Any]) -> bool:
    """Return whether a part is a picture as OpenAI's APIs take it."""
    return part.get("type") in _OPENAI_TYPES


def inline_picture(part: dict[str, Any]) -> str:
    """Return the picture that such a part holds; empty where it stands somewhere else."""
    link = part.get("image_url")
    address = link.get("url") if isinstance(link, dict) else link
    is_inline = isinstance(address, str) and part.get("file_id") is None and _INLINE.match(address)
    return str(address) if is_inline else ""


def picture_bytes(api: Api, root: dict[str, Any]) -> int:
    """Count the bytes of pictures where the API reads one; in a tool's arguments the same bytes are
    words."""
    if api == "messages":
        contents = [_parts(message.get("content")) for message in _parts(root.get("messages"))]
        # A tool's result may have pictures in it, too.
        contents += [_parts(part.get("content")) for parts in contents for part in parts if part.get("type") == "tool_result"]  # fmt: skip  # noqa: E501
        return sum(len(_anthropic_picture(part)) for parts in contents for part in parts)
    if api == "chat":
        contents = [_parts(message.get("content")) for message in _parts(root.get("messages"))]
    elif api == "responses":
        # The one holds messages, the other results of tools.
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
    """Return the picture that a part is, as base64; empty where it is none."""
    source = part.get("source")
    if (
        part.get("type") != "image"
        or not isinstance(source, dict)
        or source.get("type") != "base64"
    ):
        return ""
    data = source.get("data")
    return data if isinstance(data, str) else ""
