"""Package verdicts: each package on its own, and what no rule lifts."""

from typing import Any

import pytest
from msgspec.structs import replace

from supervisor.core.actions import Packages, PlannedPackage
from supervisor.core.packages.package_commands import parse_command
from supervisor.core.policy.rules import Verdict
from tests.fakes.ruled import ruled
from tests.tables import each_row


def verdict(command: str | Packages, **rules: Any) -> Verdict:
    return ruled(parse_command(command) if isinstance(command, str) else command, **rules)


@each_row(
    ("rule", "command", "expected"),
    [
        ("npm:zod", "npm install zod", "allow"),
        ("npm:zod", "npm install zod@4", "allow"),
        ("npm:zod", "npm uninstall zod", "allow"),
        ("npm:zod", "npm ci", "ask"),
        ("npm:zod", "pnpm add zod", "ask"),
        ("npm:@team/*", "npm install @team/a @team/b@1", "allow"),
        ("npm:@team/*", "npm install @team/a zod", "ask"),
        ("npm install zod@4", "npm install zod@4", "allow"),
        ("npm install zod@4", "npm install zod@4.1", "ask"),
        ("npm install zod", "npm uninstall zod", "ask"),
        ("npm ci", "npm ci", "allow"),
        ("npm ci", "npm install zod", "ask"),
        ("npm install -D zod", "npm install -D zod", "allow"),
        ("npm install -D zod", "npm install zod", "ask"),
        ("* install zod", "npm install zod", "allow"),
        ("pip:requests", "pip install -r requirements.txt", "ask"),
        ("pip install -r requirements.txt", "pip install -r requirements.txt", "allow"),
        ("pip install -r requirements/*", "pip install -r requirements/dev.txt", "allow"),
        ("pip install -r requirements/*", "pip install -c requirements/dev.txt", "ask"),
        ("pip install -r *", "pip install requests", "ask"),
        ("pip install *", "pip install -r requirements.txt", "ask"),
        # What no rule lifts.
        ("npm:zod", "npm install zod --registry=https://packages.example.org", "ask"),
        ("npm:*", "npm install ./zod", "ask"),
        ("npm:zod", "npm install", "ask"),
        ("npm:zod", "npm run zod", "ask"),
        ("npm:zod", "npm install zod; id", "ask"),
        ("*", "npm install zod", "ask"),
    ],
)
def test_an_allow_rule_covers_what_it_spells(rule: str, command: str, expected: str) -> None:
    assert verdict(command, allow=[f"packages({rule})"]).decision == expected


@each_row(
    ("rule", "command", "expected"),
    [
        ("npm:zod", "npm install ZOD@1", "deny"),
        ("npm:zod", "npm install a", "ask"),
        ("npm:zod", "npm ci", "ask"),
        ("npm:zod", "pip install zod", "ask"),
        ("npm install", "npm install a", "deny"),
        ("npm install *", "npm ci", "ask"),
        ("npm install --registry a", "npm install a --registry=x", "deny"),
        ("npm install --registry a", "npm install a", "ask"),
        ("*", "cargo add x", "deny"),
        ("npm:zod", "cd x; npm install zod", "deny"),
        ("npm:zod", "npm install 'zod", "deny"),
        ("npm:zod", "npm install 'a", "ask"),
        ("npm install *", "npm install $x (", "deny"),
        # A word that is no package hides no other.
        ("npm:zod", "npm install zod a\u200bb", "deny"),
        ("pip install -r *", "pip install -r x.txt a\u200bb", "deny"),
    ],
)
def test_a_deny_rule_means_any_version_and_spelling(rule: str, command: str, expected: str) -> None:
    assert verdict(command, deny=[f"packages({rule})"]).decision == expected


def test_exceptions_turn_round() -> None:
    allow = [{"rule": "packages(npm:@team/*)", "except": ["packages(npm:@team/secret)"]}]
    assert verdict("npm install @team/a", allow=allow).decision == "allow"
    assert verdict("npm install @team/SECRET@1", allow=allow).decision == "ask"
    deny = [{"rule": "packages(npm:*)", "except": ["packages(npm install zod@4)"]}]
    assert verdict("npm install zod@4", deny=deny).decision == "ask"
    assert verdict("npm install zod@5", deny=deny).decision == "deny"


def test_fields_are_judged_as_their_command_would_be() -> None:
    allow = ["packages(npm:zod)"]
    assert (
        verdict(Packages(manager="npm", operation="i", names=("zod",)), allow=allow).decision
        == "allow"
    )
    unknown = verdict(
        Packages(manager="brew", operation="install", names=("zod",), flags=("--x",)), allow=allow
    )
    assert (unknown.decision, unknown.why) == (
        "ask",
        "the package manager is not known, so no rule may allow it",
    )
    bad = verdict(Packages(manager="npm", operation="install", names=("zod;id",)), allow=allow)
    assert (bad.decision, bad.remedy) == ("deny", "name packages only")
    both = Packages(manager="npm", operation="install", names=("zod",), command="npm install other")
    assert verdict(both, allow=allow).decision == "deny"
    # A command alone is read.
    assert (
        verdict(Packages(manager="", operation="", command="npm i zod"), allow=allow).decision
        == "allow"
    )


def test_what_can_not_be_read_is_asked_with_why() -> None:
    found = verdict("npm install $x", allow=["packages(npm:*)"])
    assert (found.decision, found.sticky) == ("ask", True)
    assert "holds `$`" in found.why
    # Nothing of it is a package that could be denied: names no one could read are no names.
    assert verdict('npm install "x{', deny=["packages(npm:zod)"]).decision == "ask"


def test_no_rule_allows_a_plan_that_is_in_doubt() -> None:
    action = parse_command("npm install left-pad")
    assert verdict(action, allow=["packages(npm:left-pad)"]).decision == "allow"
    doubted = replace(action, index="http://x.test/", doubt="it comes from y.test")
    found = verdict(doubted, allow=["packages(npm:left-pad)"])
    assert found.decision == "ask"
    assert "it comes from y.test, so no rule may allow it" in found.why


@pytest.mark.parametrize(
    ("closed", "expected"),
    [
        ({"deny": ["packages(npm:evil)"]}, "deny"),
        ({"ask": ["packages(npm:evil@2*)"]}, "ask"),
        ({"deny": ["packages(npm install evil)"]}, "deny"),
        ({"deny": ["packages(npm:other)"]}, "allow"),
        ({"deny": ["packages(pip:evil)"]}, "allow"),
    ],
)
def test_deny_and_ask_rules_hold_for_all_that_was_planned(
    closed: dict[str, Any], expected: str
) -> None:
    """An allow rule names what the command does; what that brings along may be closed."""
    plan = (
        PlannedPackage(name="good", version="1.0.0"),
        PlannedPackage(name="evil", version="2.0.0"),
        PlannedPackage(name="other", version="", before="1.0.0"),
    )
    action = replace(parse_command("npm install good"), plan=plan)
    assert verdict(action, allow=["packages(npm:good)"], **closed).decision == expected


def test_planned_names_of_python_are_folded() -> None:
    plan = (PlannedPackage(name="Evil.Name", version="2.0.0"),)
    action = replace(parse_command("pip install good"), plan=plan)
    assert verdict(action, deny=["packages(pip:evil-name)"]).decision == "deny"


def test_more_names_than_can_be_judged_are_denied() -> None:
    names = " ".join(f"p{number}" for number in range(500))
    assert verdict(f"npm install {names}", allow=["packages(npm:*)"]).decision == "allow"
    denied = verdict(f"npm install {names} more", allow=["packages(npm:*)"])
    assert denied.decision == "deny"
    assert "more packages and options" in denied.why
