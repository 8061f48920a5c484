"""The examples of a rule: which action each stands for, and that a rule is held against them."""

from typing import Any, cast

import pytest

from supervisor.core.actions import Category, Exec, FileChange, Git, Network, Packages
from supervisor.core.policy.categories import failing, rule_category
from supervisor.core.policy.policy_text import parse_rule, policy_from_data
from supervisor.errors import PolicyError
from tests.tables import each_row


@each_row(
    ("category", "example", "fields"),
    [
        ("exec", "git log", {"command": "git log"}),
        ("filesystem", "src/a.py", {"operation": "write", "path": "src/a.py"}),
        ("git", "git push origin x", {"operation": "push", "remote": "origin", "refspecs": ("x",)}),
        ("git", "push x", {"operation": "push", "remote": "origin", "refspecs": ("x",)}),
        ("git", "push origin", {"operation": "push", "remote": "origin", "refspecs": ()}),
        ("git", "push --all", {"operation": "push", "flags": ("--all",)}),
        ("git", "main", {"operation": "push", "refspecs": ("main",)}),
        ("git", "feature/x", {"operation": "push", "refspecs": ("feature/x",)}),
        ("git", "fetch", {"operation": "fetch", "remote": None}),
        ("packages", "npm install zod", {"manager": "npm", "operation": "install", "names": ("zod",
         )}),
        ("packages", "npm:zod", {"manager": "npm", "operation": "install", "names": ("zod",)}),
        ("packages", "cargo:serde", {"manager": "cargo", "operation": "install", "names": ("serde",
         )}),
        ("packages", "poetry:django", {"manager": "poetry", "operation": "install",
         "names": ("django",)}),
        ("packages", "other:zod", {"manager": "", "operation": ""}),
        ("network", "a.example.com", {"operation": "connect", "host": "a.example.com",
         "port": 443}),
        ("network", "a.example.com:8443", {"operation": "connect", "port": 8443}),
        ("network", "fd00::1", {"operation": "connect", "host": "fd00::1", "port": 443}),
        ("network", "[fd00::1]:80", {"operation": "connect", "host": "[fd00::1]", "port": 80}),
        ("network", "https://a.example.com/x", {"operation": "request", "method": "GET",
         "scheme": "https", "path": "/x"}),
        ("network", "POST http://a.example.com/x", {"operation": "request", "method": "POST",
         "scheme": "http", "port": 80}),
    ],
)  # fmt: skip
def test_an_example_stands_for_one_action(
    category: Category, example: str, fields: dict[str, Any]
) -> None:
    kinds = {
        "exec": Exec,
        "filesystem": FileChange,
        "git": Git,
        "packages": Packages,
        "network": Network,
    }
    found = rule_category(category).example(example)
    assert isinstance(found, kinds[category])
    if (category, example) == ("packages", "cargo:serde") or (category, example) == (
        "packages",
        "poetry:django",
    ):
        # Which operation depends on the manager's table: one that takes a name.
        fields = {key: value for key, value in fields.items() if key != "operation"}
    assert {key: getattr(found, key) for key in fields} == fields


@pytest.mark.parametrize("example", ["a@b", "ftp://a/", "[x"])
def test_what_is_no_host_or_url_is_refused(example: str) -> None:
    with pytest.raises(PolicyError) as caught:
        rule_category("network").example(example)
    assert caught.value.remedy == "write a host, `host:port`, or `GET https://host/path`"


def test_there_is_no_example_of_a_proposal() -> None:
    with pytest.raises(PolicyError, match="no rules speak of `sandbox`"):
        rule_category(cast("Category", "sandbox"))


def test_a_rule_is_held_against_its_examples() -> None:
    policy = policy_from_data(
        {
            "ask": [
                {
                    "rule": "git(push upstream x)",
                    "match": ["git push upstream x"],
                    "not_match": ["push x"],
                }
            ]
        }
    )
    assert list(failing(policy.rules[0])) == []
    with pytest.raises(PolicyError, match="doesn't match its `match` example `cat b`"):
        policy_from_data({"allow": [{"rule": "exec(cat a)", "match": ["cat b"]}]})
    with pytest.raises(PolicyError, match="matches its `not_match` example `cat a`"):
        policy_from_data({"allow": [{"rule": "exec(cat *)", "not_match": ["cat a"]}]})
    # How long a rule lasts says nothing of what it matches.
    policy_from_data(
        {
            "allow": [
                {
                    "rule": "exec(ls)",
                    "match": ["ls"],
                    "expires": "2001-01-01",
                    "uses": 0,
                    "session": "s",
                }
            ]
        }
    )
    assert parse_rule("exec(ls)").match == ()
