"""Names of files that a program writes: lock files, and what is built or vendored.

Pure. Nobody reads these line by line, so pages fold them and a review leaves them out. It must
never look at the content: an agent could write there that nobody needs to look.
"""

import re
from typing import Literal

_LOCK = re.compile(
    r"(?:^|/)(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?"
    r"|poetry\.lock|uv\.lock|Pipfile\.lock|Cargo\.lock|Gemfile\.lock|composer\.lock|go\.sum"
    r"|mix\.lock|flake\.lock)\Z"
)
_BUILT = re.compile(
    r"(?:^|/)(?:[^/]+\.min\.(?:js|css)|[^/]+\.map|[^/]+\.pb\.go|[^/]+_pb2\.py"
    r"|(?:node_modules|vendor|dist)/.*)\Z"
)


def generated_as(path: str) -> Literal["lock file", "generated", ""]:
    """Return what kind of generated file a path names; empty for any other."""
    if _LOCK.search(path):
        return "lock file"
    return "generated" if _BUILT.search(path) else ""
