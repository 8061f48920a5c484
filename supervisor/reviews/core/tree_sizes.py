"""What the files of a commit would take of the disk, before any is written.

Pure: it reads `git ls-tree -r -t -l -z`. A pull request may name one file a million times, which a
clone holds once.
"""

MOST_ENTRIES = 250_000
MOST_BYTES = 4 * 1024**3
# Longer ones can't be opened below a folder of ours (PATH_MAX), or not at all (NAME_MAX).
MOST_PATH_BYTES, MOST_NAME_BYTES = 2_000, 255
_BLOCK_BYTES = 4096


def tree_size(listed: bytes) -> tuple[int, str]:
    """Return how many bytes the listed files take, and why they can't be checked out: "" where they
    can."""
    if listed.count(b"\0") > MOST_ENTRIES:
        return 0, f"it has more than {MOST_ENTRIES:,} files and folders"
    size_bytes = 0
    for entry in listed.split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        if len(path) > MOST_PATH_BYTES or max(map(len, path.split(b"/"))) > MOST_NAME_BYTES:
            return 0, f"a path is longer than {MOST_PATH_BYTES:,} bytes, or a name than 255"
        size = about.split()[-1]
        # A folder, a submodule, a small file: each takes a block.
        size_bytes += _BLOCK_BYTES + (int(size) if size != b"-" else 0)
        if size_bytes > MOST_BYTES:
            return 0, f"its files have more than {MOST_BYTES >> 30} GB"
    return size_bytes, ""
