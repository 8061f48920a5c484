"""One rule in another, category by category: above all where it only looks so, and an action
shows otherwise."""

from typing import Any

from supervisor.core.policy.categories import compiled, contains
from supervisor.core.policy.category import AnyRule
from supervisor.core.policy.policy_text import policy_from_data
from supervisor.core.text.globs import path_in_path
from tests.tables import each_row


def made(effect: str, rule: str | dict[str, Any]) -> AnyRule:
    return compiled(policy_from_data({effect: [rule]}).rules[0])


def holds(outer: tuple[str, str], inner: tuple[str, str]) -> bool:
    return contains(made(*outer), made(*inner), lambda path: path == "Makefile")


CONTAINED = [
    (("allow", "filesystem(src/**)"), ("allow", "filesystem(src/a.py)")),
    (("deny", "filesystem(**)"), ("allow", "filesystem(Makefile)")),
    (("deny", "filesystem(?)"), ("ask", "filesystem(a)")),
    (("allow", "network(*.example.org)"), ("allow", "network(a.example.org)")),
    (("deny", "network(https://a.example.org/**)"), ("deny", "network(https://a.example.org/x/*)")),
    (
        ("deny", "network(* https://a.example.org/x/**)"),
        ("ask", "network(GET https://a.example.org/x/y)"),
    ),
    (("allow", "git(push origin feature/*)"), ("allow", "git(push origin feature/x)")),
    (("allow", "git(diff * *)"), ("allow", "git(diff a b..c)")),
    (("deny", "git(remote *)"), ("deny", "git(remote add x)")),
    (("allow", "packages(npm:left-pad)"), ("allow", "packages(npm install left-pad@1.3.0)")),
]


@each_row(("outer", "inner"), CONTAINED)
def test_a_rule_that_says_nothing_new(outer: tuple[str, str], inner: tuple[str, str]) -> None:
    assert holds(outer, inner)


OPEN = [
    # Less strict, or of another category.
    (("allow", "filesystem(**)"), ("ask", "filesystem(a)")),
    (("deny", "network(*.example.org)"), ("deny", "filesystem(a)")),
    # A stricter rule also meets other spellings of a name: here `SS`, which is no single character.
    (("deny", "filesystem(?)"), ("deny", "filesystem(ß)")),
    # A rule that spells a protected name out lifts its protection.
    (("allow", "filesystem(*)"), ("allow", "filesystem(Makefile)")),
    (("allow", "filesystem([ab]*)"), ("allow", "filesystem([a]*)")),
    (("allow", "filesystem(a)"), ("allow", "filesystem(a*)")),
    # Another scheme, fewer methods, another path, other ports.
    (
        ("deny", "network(* https://a.example.org/**)"),
        ("deny", "network(* http://a.example.org/x)"),
    ),
    (
        ("deny", "network(GET https://a.example.org/**)"),
        ("deny", "network(* https://a.example.org/**)"),
    ),
    (
        ("deny", "network(* https://a.example.org/x/**)"),
        ("deny", "network(* https://a.example.org/y)"),
    ),
    (("allow", "network(a.example.org)"), ("allow", "network(a.example.org:22)")),
    (("allow", "network(192.0.2.0/24)"), ("allow", "network(2001:db8::/32)")),
    # A URL rule that is stricter doesn't forbid the connection that one which allows opens.
    (
        ("deny", "network(* https://a.example.org/**)"),
        ("allow", "network(* https://a.example.org/**)"),
    ),
    (("allow", "git(push origin *)"), ("allow", "git(push --force origin x)")),
    (("allow", "git(diff *)"), ("allow", "git(diff a b)")),
    (("allow", "git(diff a)"), ("allow", "git(diff x a)")),
]


@each_row(("outer", "inner"), OPEN)
def test_a_rule_that_only_looks_superfluous(outer: tuple[str, str], inner: tuple[str, str]) -> None:
    assert not holds(outer, inner)


def test_an_exception_opens_the_outer_rule_unless_the_inner_one_has_it_too() -> None:
    outer = made("deny", {"rule": "filesystem(src/**)", "except": ["filesystem(src/a)"]})
    same = made("deny", {"rule": "filesystem(src/x/*)", "except": ["filesystem(src/a)"]})
    assert contains(outer, same, lambda _: None)
    assert not contains(outer, made("deny", "filesystem(src/x/*)"), lambda _: None)


@each_row(
    ("wide", "narrow", "expected"),
    [
        ("**", "a/b", True),
        ("a/**/b", "a/b", True),
        ("a/**", "a", True),
        ("*", "a/b", False),
        ("*.py", "a*.py", True),
        ("a*c", "ab*c", True),
        ("a?", "a*", False),
        ("*/b", "**/b", False),
        ("**/b", "*/b", True),
        ("?", "?", True),
        ("a[bc]", "ab", True),
    ],
)
def test_a_glob_in_a_glob(wide: str, narrow: str, expected: bool) -> None:
    assert path_in_path(wide, narrow) is expected
