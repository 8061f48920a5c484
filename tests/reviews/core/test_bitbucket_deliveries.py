"""Bitbucket's webhooks as text, and its people."""

from typing import Any

import pytest

from supervisor.errors import UserError
from supervisor.reviews.core.bitbucket_deliveries import EVENTS, BitbucketWebhooks
from supervisor.reviews.core.forge_people import is_same_person, person, person_id, person_name

READER = BitbucketWebhooks()
ID = "{1f2e3d4c-0000-4000-8000-00000000000A}"


def test_a_head_names_a_delivery_and_an_event() -> None:
    head = {"x-request-uuid": "{9a-1}", "x-event-key": "pullrequest:comment_created"}
    found = READER.head(head)
    assert found == ("9a-1", "pullrequest", "comment_created")
    assert READER.action(found, {}) == "comment_created"
    for wrong in (
        *({}, head | {"x-request-uuid": "../x"}, head | {"x-event-key": "pullrequest"}),
        *(head | {"x-event-key": one} for one in ("a:B", ":x", "x:", "a:" + "b" * 65, "é:x")),
    ):
        with pytest.raises(UserError):
            READER.head(wrong)


def test_what_an_event_is_about() -> None:
    kinds = {one: READER.kind(*one.split(":")) for one in EVENTS}
    assert kinds == {
        **{f"pullrequest:{one}": "pull" for one in ("created", "updated", "fulfilled", "rejected")},
        "pullrequest:comment_created": "comment",
        "repo:push": "push",
    }
    for other in ("repo:fork", "pullrequest:approved", "pullrequest:comment_updated", "issue:x"):
        assert READER.kind(*other.split(":")) == ""
    assert READER.number({"pullrequest": {"id": 3}}) == 3
    for wrong in (0, True, "3", 1 << 31, None):
        assert READER.number({"pullrequest": {"id": wrong}}) is None


def test_a_comment_is_read_as_far_as_it_is_one() -> None:
    user = {"nickname": "ada", "uuid": ID}
    said: dict[str, Any] = {"id": 7, "content": {"raw": "@gatehouse why"}, "user": user}
    inline = said | {"inline": {"path": "a", "to": 1}}
    assert READER.comment("x", {"comment": said}) == (
        *(7, f"ada {ID.lower()}", "@gatehouse why", False),
    )
    assert READER.comment("x", {"comment": inline}) == (
        *(7, f"ada {ID.lower()}", "@gatehouse why", True),
    )
    assert READER.comment("x", {"comment": {"id": 7, "user": 3}}) == (7, "", "", False)
    assert READER.comment("x", {"comment": {"id": True}}) is None


def test_a_person_is_an_account_whatever_its_name() -> None:
    assert person({"nickname": "ada", "uuid": ID}) == f"ada {ID.lower()}"
    assert person({"display_name": "A  Bot", "uuid": ID}) == f"A Bot {ID.lower()}"
    assert person({"uuid": ID}) == f"somebody {ID.lower()}"
    assert person({"nickname": "ada"}) == person({"uuid": "x"}) == "ghost"
    other = ID.replace("1f2e", "ffff")
    forged = person({"nickname": f"eve {ID}\n\u202e" + "x" * 500, "uuid": other})
    assert person_id(forged) == other.lower()
    assert len(forged) < 200
    assert forged.isprintable()
    assert (person_name(f"ada {ID}"), person_name("ada"), person_id("ada")) == ("ada", "ada", "")
    assert is_same_person(f"ada {ID.lower()}", f"renamed {ID.lower()}")
    assert is_same_person("ada", "ada")
    for one, another in (("ada", "bob"), (f"ada {ID}", f"ada {other}"), ("", "ada")):
        assert not is_same_person(one, another)
