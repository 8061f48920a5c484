"""YAML as data that knows its lines: nothing is resolved, nothing is built, and no text is too
much for it. `.reviewerc` is told every fault at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.text import strict_yaml
from supervisor.core.text.strict_yaml import (
    MOST_BYTES,
    Fields,
    Items,
    Text,
    line_of,
    load,
    read_nodes,
)
from supervisor.errors import PolicyError
from tests.tables import each_row


def test_text_stays_text_and_only_nothing_is_none() -> None:
    found = load(
        "a: no\nb: 2027-01-31\nc: 1.0\nd: ~\ne:\nf: null\ng: 'null'\nh: ''\ni: 0x10\n", "p"
    )
    assert found == {
        "a": "no",
        "b": "2027-01-31",
        "c": "1.0",
        "d": None,
        "e": None,
        "f": None,
        "g": "null",
        "h": "",
        "i": "0x10",
    }


def test_everything_knows_its_line() -> None:
    found = load("allow:\n  - exec(ls)\n  - rule: exec(cat)\n    match:\n    - cat a\n", "p")
    first, second = found["allow"]
    assert [
        line_of(one)
        for one in (found, found["allow"], first, second, second["match"], second["match"][0])
    ] == [
        1,
        2,
        2,
        3,
        5,
        5,
    ]
    assert line_of("plain text") == 0


def test_nested_data_is_built_in_order() -> None:
    assert load("[a, [b, {c: [d], e: {f: g}}], []]", "p") == [
        "a",
        ["b", {"c": ["d"], "e": {"f": "g"}}],
        [],
    ]
    assert load("a", "p") == "a"
    assert load("", "p") is None
    assert load("# nothing", "p") is None


@each_row(
    ("text", "where", "said"),
    [
        ("a: [", "p:2", "did not find expected node content"),
        ("a: b: c", "p:1", "mapping values are not allowed"),
        ("a: &x [b]\nc: *x", "p:2", "an alias"),
        ("a: &x [*x]", "p:1", "an alias"),
        (
            "a: !!python/object:os.system x",
            "p:1",
            "the tag `tag:yaml.org,2002:python/object:os.system`",
        ),
        ("a:\n  - !!int 5", "p:2", "the tag `tag:yaml.org,2002:int`"),
        ("a: !mine {b: c}", "p:1", "the tag `!mine`"),
        ("a: b\n---\nc: d", "p:2", "a second document"),
        ("a: b\na: c", "p:2", "the key `a` stands here twice"),
        ("{[a]: b}", "p:1", "a key that is not text"),
        ("~: b", "p:1", "a key that is not text"),
        ("a: b\n\ud800: c", "p:2", "holds something that is not text"),
        ("a: \x07", "p", "control characters are not allowed"),
        ("[" * 22 + "]" * 22, "p:1", "nested too deeply"),
        ("{a: " * 22 + "b" + "}" * 22, "p:1", "nested too deeply"),
    ],
)
def test_what_a_policy_may_not_use_is_refused_with_its_line(
    text: str, where: str, said: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        load(text, "p")
    assert caught.value.message.startswith(f"{where}: ")
    assert said in caught.value.message
    assert caught.value.remedy


def test_a_text_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "MAX_CHARS", 10)
    assert load("a: b\n", "p") == {"a": "b"}
    with pytest.raises(PolicyError, match="longer than 10 characters"):
        load("a: b # too much\n", "p")


@pytest.mark.parametrize(
    "text",
    [
        "'[' * 400_000",
        "'- ' * 400_000",
        "'{a: ' * 400_000",
        "'[' * 400_000 + ']' * 400_000",
        "'? ' * 400_000",
    ],
)
def test_no_depth_ends_the_process(text: str, root: Path) -> None:
    """PyYAML's own composer recurses in C: such a text is a segmentation fault there."""
    program = f"""
from supervisor.core.policy.policy_text import parse_policy
from supervisor.errors import PolicyError
try:
    parse_policy({text}, "p")
except PolicyError as error:
    print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("p:1: nested too deeply\n", "p:1: a key that is not text\n")


def messages(text: str) -> list[str]:
    return [f"{one.line}: {one.message}" for one in read_nodes(text.encode())[1]]


def test_scalars_keep_their_quotes_and_lines() -> None:
    root, faults = read_nodes(b'a: off\nb: "off"\nc: [1, ~]\n')
    assert not faults
    assert isinstance(root, Fields)
    plain, quoted, (one, nothing) = root["a"], root["b"], root["c"]
    assert (plain, plain.is_plain, plain.line) == ("off", True, 1)
    assert (quoted, quoted.is_plain, quoted.line) == ("off", False, 2)
    assert isinstance(root["c"], Items)
    assert (one.line, one.is_nothing, nothing.is_nothing) == (3, False, True)
    assert [key.line for key in root] == [1, 2, 3]


def test_a_quoted_word_is_never_nothing() -> None:
    root, _ = read_nodes(b'"null"')
    assert isinstance(root, Text)
    assert not root.is_nothing


@each_row(
    ("text", "found"),
    [
        ("a: &x 1\nb: *x\n", ["1: the anchor `&x`", "2: an alias"]),
        ("a: &x [1]\nb: [*x]\n", ["1: the anchor `&x`", "2: an alias"]),
        ("a: !!int 1\nb: !x [1]\n", ["1: the tag `tag:yaml.org,2002:int`", "2: the tag `!x`"]),
        ("a: 1\na: {b: 1, b: 2}\nc: 1\nc: 2", [
            "2: the key `a` stands here twice",
            "2: the key `b` stands here twice",
            "4: the key `c` stands here twice",
        ]),
        ("? [a]\n: 1\nb: 2\nb: 3\n",
         ["1: a key that is not text", "4: the key `b` stands here twice"]),
        ("? {a: 1}\n: {b: 1}\n", ["1: a key that is not text"]),
        ("a: 1\n---\nb: 2\n", ["2: a second document"]),
        ("a: [\n", ["1: did not find expected node content"]),
        ("a: &x 1\nb: 'c\n", ["1: the anchor `&x`", "2: found unexpected end of stream"]),
        ("a: \x01\n", ["1: a character that YAML doesn't take"]),
        ("[" * 30, ["1: nested too deeply"]),
    ],
)  # fmt: skip
def test_every_fault_of_a_repositorys_file_is_found(text: str, found: list[str]) -> None:
    assert messages(text) == found


def test_a_faulty_key_takes_its_value_with_it() -> None:
    root, _ = read_nodes(b"a: 1\na: 2\n? [x]\n: 3\nb: 4\n")
    assert root == {"a": "1", "b": "4"}


def test_an_empty_file_and_one_that_is_no_text() -> None:
    assert read_nodes(b"") == (None, [])
    assert read_nodes(b"a: 1\nb: \xff\n")[1][0][:2] == (2, "holds something that is not text")
    assert read_nodes(b"#" * (MOST_BYTES + 1))[1][0][:2] == (1, "longer than 64 kB")
    assert read_nodes(b"#" * MOST_BYTES) == (None, [])
