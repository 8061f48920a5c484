"""Three-way merges by git: what can be merged is, and everything else says why and gives no
content."""

from supervisor.workspace.disk import merging
from supervisor.workspace.disk.merging import merge_file

BASE = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n"


async def test_changes_in_different_places_are_merged() -> None:
    merged = await merge_file(BASE, BASE.replace(b"one", b"1"), BASE.replace(b"seven", b"7"))
    assert merged.content == BASE.replace(b"one", b"1").replace(b"seven", b"7")


async def test_the_same_place_is_a_conflict_and_no_markers_come_back() -> None:
    merged = await merge_file(BASE, BASE.replace(b"four", b"4"), BASE.replace(b"four", b"IV"))
    assert merged.content is None
    assert merged.why == "1 place in it was changed both ways"


async def test_what_needs_no_merge_is_taken_as_it_is() -> None:
    binary = bytes(range(256))
    assert (await merge_file(binary, binary, b"new")).content == b"new"
    assert (await merge_file(binary, b"new", binary)).content == b"new"
    assert (await merge_file(binary, b"new", b"new")).content == b"new"


async def test_binary_and_large_content_is_not_merged(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    assert "not text" in (await merge_file(b"\0a", b"\0b", b"\0c")).why
    monkeypatch.setattr(merging, "MOST_MERGED_BYTES", 3)
    assert "larger" in (await merge_file(BASE, b"x", b"y")).why


async def test_any_bytes_survive() -> None:
    base = b"\xff\xfe one\r\n" + BASE + b"last without newline"
    merged = await merge_file(base, base.replace(b"three", b"3"), base.replace(b"newline", b"end"))
    assert merged.content == base.replace(b"three", b"3").replace(b"newline", b"end")
