"""No text makes a reader take more than linear time (law 14): each expression that reads hostile
text gets worst cases made from itself, each parser its language's tokens."""

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from supervisor.core.actions import WORKSPACE, Exec, FileChange, Git, Network, Packages
from supervisor.core.models.call_bodies import read_call
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.policy.policy_text import parse_policy, policy_from_data
from supervisor.core.quarantine.quarantine_answers import BadAnswerError, inert, read_answer
from supervisor.core.review_markdown import fenced, plain
from supervisor.core.secrets.command_secrets import without_secrets
from supervisor.core.secrets.url_secrets import in_headers, in_target
from supervisor.core.text.globs import ignore_step, steps_fit, steps_of
from supervisor.egress.protocols.codings import Decoder
from supervisor.errors import PolicyError
from supervisor.reviews.core.config.reader import read_reviewerc
from tests.fuzz import seeds
from tests.hostile_readers import found, listed, slowest_of
from tests.worst_cases import LARGE, MOST_GROWTH, Case, of_tokens, slowest, taken_s

EVERYTHING = bool(os.environ.get("EVERYTHING"))
# Cases for each expression, and tokens for each parser: `make test` tries a share.
MOST_CASES, TOKENS = (300, 1) if EVERYTHING else (5, 40)

# Expressions are tried by so many tests, side by side.
PARTS = 60 if EVERYTHING else 8


@pytest.mark.parametrize("part", range(PARTS))
def test_no_expression_takes_more_than_linear_time(part: int) -> None:
    hostile = [
        reader
        for reader in found()
        if reader.what.startswith("re.") and reader.key in listed()["hostile"]
    ]
    tried = hostile[part::PARTS]
    assert tried
    slow = {reader.key: slowest_of(reader, MOST_CASES) for reader in tried}
    assert not {
        key: f"{one.case}: {one.at_middle:.3f} s, then {one.at_large} s"
        for key, one in slow.items()
        if one is not None and one.is_bad
    }


_POLICY = policy_from_data(
    {
        "allow": ["exec(git log *)", "exec(find *)", "git(push origin feature/*)"],
        "deny": ["exec(rm *)", "git(main)", "packages(npm:x)", "network(*.evil.example)"],
        "ask": ["filesystem(secret/**)"],
        "protected": {"deny": ["a/**/b/**/c"]},
    }
)


def _judged(action: Exec | FileChange | Git | Network | Packages) -> None:
    evaluate(_POLICY, action, now=0.0, workspace=WORKSPACE, uses={})


def _answered(text: str) -> None:
    try:
        read_answer(f"<review>{text}</review>")
    except BadAnswerError:
        inert(text)


def _policy(text: str) -> None:
    with contextlib.suppress(PolicyError):
        parse_policy(text, "p")


def _rendered(text: str) -> None:
    plain(text)
    fenced(text)


def _decoded(coding: str, body: bytes) -> None:
    for _ in Decoder(coding).decode(body):
        pass


def _request(path: str) -> Network:
    return Network(
        operation="request", host="a.example", port=443, scheme="https", method="GET", path=path
    )


def _called(text: str) -> None:
    read_call("messages", "/v1/messages", text.encode("utf-8", "replace"))


# Each with the tokens of its language, and the longest text that it is given.
READERS: dict[str, tuple[Callable[[str], object], str, int]] = {
    "a command": (lambda text: _judged(Exec(command=text)), "exec", LARGE),
    "a command's secrets": (without_secrets, "exec", LARGE),
    "a path": (lambda text: _judged(FileChange(operation="write", path=text)), "paths", 4096),
    "a git command": (lambda text: _judged(Git(operation="", command=text)), "git", LARGE),
    "an install": (
        lambda text: _judged(Packages(manager="", operation="", command=text)),
        "packages",
        LARGE,
    ),
    "a URL": (lambda text: _judged(_request(f"/{text}")), "hosts", LARGE),
    "a URL's secrets": (lambda text: in_target(f"/?{text}"), "hosts", LARGE),
    "a header's secrets": (lambda text: in_headers((("referer", text),)), "hosts", LARGE),
    "an answer from quarantine": (_answered, "policy", LARGE),
    "a model call": (_called, "check", LARGE),
    "a policy": (_policy, "policy", LARGE),
    "a .reviewerc": (lambda text: read_reviewerc(text.encode(), ("UTC",)), "policy", LARGE),
    "Markdown": (_rendered, "exec", LARGE),
}


@pytest.mark.parametrize("name", READERS)
def test_no_parser_takes_more_than_linear_time(name: str) -> None:
    read, language, most = READERS[name]
    cases = list(of_tokens(seeds._TOKENS[language].split(" ")))[::TOKENS]
    slow = slowest(read, [*_PROVED.get(name, ()), *cases], most)
    assert slow is not None
    assert not slow.is_bad, (str(slow.case), slow)


# What once held the loop.
_PROVED: dict[str, list[Case]] = {
    "a command": [Case("git "), Case("{", behind=",,,")],
    "a command's secrets": [Case("git "), Case("A= ", behind="token=x")],
    "a path": [Case("a/b/")],
    "a URL's secrets": [Case(";a="), Case(";code=1"), Case("?code=1")],
    "a header's secrets": [Case(";a="), Case("#code=1")],
    "an answer from quarantine": [Case("ww."), Case(" \n", "```json"), Case("<review>")],
    "a policy": [
        *(Case(f"- {one}\n", "version: 1\nallow:\n") for one in ("exec(a)", "exec(*a *b)", "x((")),
        Case("a: 1\n"),
        Case("a*", "version: 1\ndeny: [filesystem(", ")]"),
    ],
    "a .reviewerc": [
        Case("- {id: a, prompt: x}\n", "version: 1\ncommands:\n"),
        Case("- {id: a, commandRef: b}\n", "version: 1\nreview:\n prompts:\n"),
        Case("- '*a*b/**'\n", "version: 1\nreview:\n ignore:\n"),
        Case("a: 1\n"),
    ],
    "Markdown": [Case(one) for one in ("<", "](", "@a", "#1", "- ", "1.", "www.", "&#", "\t")],
    "a model call": [Case('{"media_type":'), Case('{"type":'), Case("[")],
}


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress,
    "zstd": zstandard.compress,
}  # fmt: skip


@pytest.mark.parametrize("coding", [*_PACKERS, "deflate, deflate", "gzip, br, zstd"])
def test_no_decoder_takes_more_than_linear_time(coding: str) -> None:
    # Bodies that unpack to nothing, to little and to much, one behind the other.
    packed = list(map(_PACKERS[coding.rpartition(" ")[2]], (b"", b"a", bytes(10_000))))
    words = [*packed, *(one[:-1] for one in packed), b"\0", b"\xff", b"\x1f\x8b\x08", b"(\xb5/\xfd"]
    units = [one.decode("latin-1") for one in words if one]
    cases = [Case(one, before) for one in units for before in ("", *units[:3])]
    slow = slowest(lambda text: _decoded(coding, text.encode("latin-1")), cases)
    assert slow is not None
    assert not slow.is_bad, (str(slow.case), slow)


def test_nested_parts_of_a_model_call_are_read_in_linear_time() -> None:
    """As deep as a body may be: each level once was spelled out with all below it."""

    def nested(size: int) -> str:
        depth = 400
        inner = '"' + "x" * size + '"'
        return '{"messages": [], "tools": [' + '{"type":' * depth + inner + "}" * depth + "]}"

    at_small, at_large = (taken_s(_called, nested(size), 3) for size in (100_000, 400_000))
    assert at_small is not None
    assert at_large is not None
    assert at_large < 0.5 or at_large <= MOST_GROWTH * at_small


@pytest.mark.parametrize("pattern", ["*a" * 60 + "b", "*?" * 60 + "b", "*[ab]" * 50 + "c"])
def test_a_pattern_with_many_stars_is_matched_in_linear_time(pattern: str) -> None:
    """A name has 255 bytes at most; trying all ways would take longer than the world is old."""
    assert taken_s(lambda name: steps_fit([ignore_step(pattern)], [name]), "a" * 255) is not None
    assert taken_s(lambda name: steps_fit(steps_of(pattern), [name]), "a" * 255) is not None


def test_this_test_sees_what_takes_the_square_of_its_length() -> None:
    slow = slowest(re.compile("a*b").search, [Case("a")], LARGE // 4)
    assert slow is not None
    assert slow.is_bad
    linear = slowest(re.compile("a*+b").match, [Case("a")])
    assert linear is not None
    assert not linear.is_bad
