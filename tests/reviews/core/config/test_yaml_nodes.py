"""The subset of YAML that `.reviewerc` may use, with every fault of its form at once."""

from supervisor.core.text.policy_yaml import Fields, Items
from supervisor.reviews.core.config.yaml_nodes import MOST_BYTES, Scalar, read_nodes
from tests.tables import each_row


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
    assert isinstance(root, Scalar)
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
def test_faults(text: str, found: list[str]) -> None:
    assert messages(text) == found


def test_a_faulty_key_takes_its_value_with_it() -> None:
    root, _ = read_nodes(b"a: 1\na: 2\n? [x]\n: 3\nb: 4\n")
    assert root == {"a": "1", "b": "4"}


def test_nothing_and_what_is_no_text() -> None:
    assert read_nodes(b"") == (None, [])
    assert read_nodes(b"a: 1\nb: \xff\n")[1][0][:2] == (2, "holds something that is not text")
    assert read_nodes(b"#" * (MOST_BYTES + 1))[1][0][:2] == (1, "longer than 64 kB")
    assert read_nodes(b"#" * MOST_BYTES) == (None, [])
