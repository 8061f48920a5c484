"""YAML as data that knows its lines: nothing is resolved, nothing is built, and no text is too
much for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.core.text import policy_yaml
from supervisor.core.text.policy_yaml import line_of, load
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
    monkeypatch.setattr(policy_yaml, "MAX_CHARS", 10)
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
