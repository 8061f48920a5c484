"""Where GitHub takes a remark: lines that the diff of a pull request shows.

Written apart from what Gatehouse posts by, so that the one can prove the other: it walks the lines
of a diff and counts, where Gatehouse trusts the heads of its hunks.
"""

import re

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")

type AnchorPlaces = dict[str, list[set[int]]]


def places(patch: str, names: list[str]) -> AnchorPlaces:
    """Return for each path the lines of the new file that a remark may stand beside, a set for
    each hunk. `names` are the paths in the order of the patch."""
    found: AnchorPlaces = {}
    at, line, shown = -1, 0, set[int]()
    for text in patch.split("\n"):
        if text.startswith("diff --git "):
            at += 1
            found[names[at]] = []
        elif hunk := _HUNK.match(text):
            line, shown = int(hunk[2]), set()
            found[names[at]].append(shown)
        elif found and found[names[at]] and text[:1] in ("+", " "):
            shown.add(line)
            line += 1
    return found
