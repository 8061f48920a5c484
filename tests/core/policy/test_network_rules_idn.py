"""Names in other scripts, in a rule and in a request: the same name whichever way it is written,
and no other."""

import json

import pytest

from supervisor.core.lab.check import answer
from tests.tables import each_row

BUECHER, STRASSE = "xn--bcher-kva.example", "xn--strae-oqa.example"


def verdict(pattern: str, **line: object) -> str:
    policy = {"allow": [f"network({pattern})"], "modes": {"network": "deny"}}
    data = json.dumps({"id": "1", "category": "network", "policy": policy} | line)
    found: str = json.loads(answer(data.encode(), None, None, 0.0))["verdict"]
    return found


SAME = {
    "letters and code": ["bücher.example", BUECHER, "BÜCHER.EXAMPLE", "XN--BCHER-KVA.example",
    "xn--bcher-KVA.EXAMPLE."],
    "composed or not": ["bücher.example", "bu\u0308cher.example", "bücher.example."],
    "dots of other scripts": ["bücher.example", "bücher\u3002example", "bücher\uff0eexample",
    "bücher\uff61example"],
    "wide letters": ["example.com", "\uff45xample.com", "\uff25XAMPLE.\uff43om", "example.com."],
    "a letter that stays one": ["straße.example", STRASSE, "STRAẞE.example", "Straße.Example."],
}  # fmt: skip
OTHER = {
    "the letter that became two once": ["straße.example", "strasse.example"],
    "a letter that looks alike": ["paypal.example", "p\u0430ypal.example", "xn--pypal-4ve.example"],
    "another order": ["bücher.example", "example.bücher"],
    "below it": ["bücher.example", "a.bücher.example", f"a.{BUECHER}"],
}
# Of a label below a name whose every other label is allowed.
INVALID = [
    "xn--", "xn--a", "xn--example-", "xn--bcher-kva1", "xn--0", "xn--bcher-kvb", "xn--strasse-",
    "a.", "-a", "a-", "a_b\uff05",
    "exam\u200dple", "exam\u200cple", "exam\u202eple", "exa mple", "exam\u0000ple", "ex\uff0fample",
    "ex\uff1aample", "ex\u2100ample",
    "b\u00fccher%2e", "\u0308a", "a" * 64, ".".join(["a" * 60] * 5),
]  # fmt: skip


@pytest.mark.parametrize("names", SAME.values(), ids=SAME)
def test_a_name_is_the_same_however_it_is_written(names: list[str]) -> None:
    for pattern in names:
        for name in names:
            assert verdict(pattern.rstrip("."), connect=f"{name}:443") == "allow", (pattern, name)
            assert (
                verdict(f"* https://{pattern.rstrip('.')}/**", method="GET", url=f"https://{name}/")
                == "allow"
            )
            both = {"sni": names[0].rstrip("."), "host_header": name}
            assert verdict(pattern.rstrip("."), connect=f"{name}:443", **both) == "allow", (
                pattern,
                name,
            )


@pytest.mark.parametrize("names", OTHER.values(), ids=OTHER)
def test_no_other_name_is_allowed_nor_a_connection_that_says_both(names: list[str]) -> None:
    first, *others = names
    for other in others:
        assert verdict(first, connect=f"{other}:443") == "deny", other
        assert verdict(other, connect=f"{first}:443") == "deny", other
        # Nor may one connection say both.
        assert verdict(first, connect=f"{first}:443", sni=first) == "allow"
        assert verdict(first, connect=f"{first}:443", sni=other) == "deny", other
        assert verdict(first, connect=f"{first}:443", host_header=other) == "deny", other


def test_a_letter_without_width_changes_no_name_and_stands_in_no_rule() -> None:
    assert verdict("example.com", connect="exam\u00adple.com:443") == "allow"
    assert verdict("exam\u00adple.com", connect="example.com:443") == "deny"


@each_row("name", INVALID)
def test_what_is_no_valid_name_is_allowed_by_none(name: str) -> None:
    for label, expected in ((name, "deny"), ("a", "allow")):
        assert verdict("*.team.example", connect=f"{label}.team.example:443") == expected
        pattern = "* https://*.team.example/**"
        assert verdict(pattern, method="GET", url=f"https://{label}.team.example/") == expected
