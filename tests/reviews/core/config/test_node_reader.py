"""Nodes as what a type wants: each fault with its line and what to do."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, inspect

from supervisor.core.text.strict_yaml import read_nodes
from supervisor.reviews.core.config.node_reader import NodeReader
from tests.tables import each_row


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    needed: str
    more: Annotated[str, Meta(min_length=1, max_length=5)] = ""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One field of each type."""

    version: Literal[1] = 1
    word: Literal["one", "two"] = "one"
    flag: bool = False
    count: Annotated[int, Meta(ge=1, le=10)] = 1
    number: Annotated[float, Meta(ge=0, le=2)] | None = None
    name: Annotated[str, Meta(pattern=r"^[a-z]+$")] = "a"
    shaped: Annotated[str, Meta(extra_json_schema={"format": "shout"})] = ""
    inner: Inner | None = None
    some: Annotated[tuple[Inner, ...], Meta(min_length=1, max_length=2)] | None = None
    either: bool | tuple[str, ...] | None = None
    names: Annotated[dict[Annotated[str, Meta(pattern="^[a-z]$")], bool], Meta(max_length=2)] = {}


def shout(kind: str, text: str) -> tuple[str, str] | None:
    assert kind == "shout"
    return None if text.isupper() else ("is too quiet", "shout")


def read(text: str) -> tuple[dict[str, Any], NodeReader]:
    root, faults = read_nodes(text.encode())
    assert root is not None
    assert all("alias" in one.message or "anchor" in one.message for one in faults)
    reader = NodeReader(shout)
    wanted = inspect.type_info(Shape)
    assert isinstance(wanted, inspect.StructType)
    return reader.struct(root, wanted, ""), reader


@each_row(
    ("text", "found"),
    [
        ("version: 1", {"version": 1}),
        ("word: two", {"word": "two"}),
        ("flag: true", {"flag": True}),
        ("flag: false", {"flag": False}),
        ("count: 10", {"count": 10}),
        ("number: 0.5", {"number": 0.5}),
        ("number: 2", {"number": 2.0}),
        ("shaped: HA", {"shaped": "HA"}),
        ("inner: {needed: off}", {"inner": {"needed": "off"}}),
        ("some: [{needed: a}]", {"some": [{"needed": "a"}]}),
        ("either: true", {"either": True}),
        ("either: [a]", {"either": ["a"]}),
        ("names: {a: true}", {"names": {"a": True}}),
    ],
)
def test_values(text: str, found: dict[str, Any]) -> None:
    value, reader = read(text)
    assert value == found
    assert reader.faults == []


@each_row(
    ("text", "message", "remedy"),
    [
        ("wrd: one", "unknown key `wrd`", "did you mean `word`?"),
        ("inner: {needed: a, mor: b}", "unknown key `mor` in `inner`", "did you mean `more`?"),
        ("inner: {}", "`inner` has no `needed`", "add `needed:`"),
        ("inner: x", "`inner: x` is not a mapping", "below it stand `needed`, `more`"),
        ("inner:", "`inner` has no value", "give it one, or leave the key out"),
        ("version: 2", "`version: 2` is not the number 1", "write `1`, without quotes"),
        ('version: "1"', '`version: "1"` is not the number 1', "write `1`, without quotes"),
        ("version: true", "`version: true` is not the number 1", "write `1`, without quotes"),
        ("word: tow", "`word: tow` is not known", "did you mean `two`?"),
        ("word: [one]", "`word` is not one value", "write one word or number"),
        ("flag: yes", "`flag: yes` is neither true nor false",
         "write `true` or `false`, without quotes"),
        ('flag: "true"', '`flag: "true"` is neither true nor false',
         "write `true` or `false`, without quotes"),
        ("count: 0", "`count: 0` is too small", "the least is 1"),
        ("count: 11", "`count: 11` is too large", "the most is 10"),
        ("count: 1.5", "`count: 1.5` is no whole number", "write digits, without quotes"),
        ('count: "1"', '`count: "1"` is no whole number', "write digits, without quotes"),
        ("number: x", "`number: x` is no number", "write e.g. `0.4`, without quotes"),
        ("number: 2.1", "`number: 2.1` is too large", "the most is 2"),
        ("name: A", "`name: A` is no id", "write small letters, digits and `-`, 64 at most"),
        ("shaped: ha", "`shaped: ha` is too quiet", "shout"),
        ("shaped: [HA]", "`shaped` is not one value", "write one word or number"),
        ("some: {}", "`some` is not a list", "write it as `[...]`"),
        ("some: []", "`some` is empty", "put something in, or leave the key out"),
        ("some: [{needed: a}, {needed: b}, {needed: c}]", "`some` has 3 entries", "keep it to 2"),
        ("inner: {needed: a, more: ''}", '`inner.more: ""` is empty',
         "put something in, or leave the key out"),
        ("inner: {needed: a, more: abcdef}", "`inner.more: abcdef` has 6 characters",
         "keep it to 5"),
        ("names: []", "`names` is not a mapping", "write names and lists below it"),
        ("names: {a: true, b: true, c: true}", "`names` has 3 entries", "keep it to 2"),
        ("names: {AB: true}", "`names.AB: AB` is no id",
         "write small letters, digits and `-`, 64 at most"),
        ("[a]", "`the file` is not a mapping",
         "below it stand `version`, `word`, `flag`, `count`, `number`, `name`, `shaped`,"
         " `inner`, `some`, `either`, `names`"),
        ("\"a\\u202e`b\": 1", "unknown key `a\\u202e'b`", "known are"),
    ],
)  # fmt: skip
def test_faults(text: str, message: str, remedy: str) -> None:
    _, reader = read(text)
    (fault,) = reader.faults
    assert (fault.line, fault.message) == (1, message)
    assert fault.remedy.startswith(remedy)


def test_all_faults_are_told_each_at_its_line() -> None:
    _, reader = read("flag: maybe\nsome:\n  - {}\n  - needed: a\n    oops: 1\nname: B\n")
    assert [one.line for one in reader.faults] == [1, 3, 5, 6]
    assert reader.lines["some[1].needed"] == 4


def test_what_was_refused_already_is_not_told_again() -> None:
    value, reader = read("word: &x one\nflag: *x\nsome: [*x]\nnumber: *x\nshaped: *x\n")
    assert value == {"word": "one", "some": []}
    assert reader.faults == []
    assert reader.lines["some[0]"] == 3


def test_a_long_value_is_not_repeated() -> None:
    _, reader = read(f"name: {'A' * 101}")
    assert reader.faults[0].message == "`name` is no id"


def test_a_type_that_no_file_has_is_a_mistake_of_ours() -> None:
    reader = NodeReader(shout)
    root, _ = read_nodes(b"x")
    assert root is not None
    with pytest.raises(TypeError):
        reader.value(root, inspect.type_info(bytes), "x")
