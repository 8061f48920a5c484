"""Acts on a forge, for a person and for superseding."""

from typing import Any

from supervisor.core.actions import decode, encode, fingerprint, subject, title
from supervisor.core.forge_acts import Act
from tests.tables import each_row


def act(**more: Any) -> Act:
    return Act(**{"operation": "post", "forge": "github", "repository": "acme/shop"} | more)


@each_row(
    ("one", "words"),
    [
        (act(number=3), "post a review on acme/shop#3"),
        (act(number=3, title="licences"), "post the prompt licences on acme/shop#3"),
        (act(number=3, verdict="approve"), "post an approval on acme/shop#3"),
        (act(verdict="request_changes"), "post a request for changes on acme/shop"),
        (
            act(operation="check", number=3, conclusion="neutral"),
            "set the check to neutral on acme/shop#3",
        ),
        (
            act(operation="open-pr", branch="fix", base="main"),
            "open a pull request in acme/shop: fix into main",
        ),
        (act(operation="dismiss", number=1), "dismiss our review on acme/shop#1"),
        (act(operation="undo", number=1), "take back our review on acme/shop#1"),
        (act(operation="comment", number=1), "comment on acme/shop#1"),
        (act(operation="reply", number=1), "reply to a comment on acme/shop#1"),
        (act(operation="resolve", number=1, targets=("a",)), "resolve a thread on acme/shop#1"),
        (act(operation="resolve", targets=("a", "b")), "resolve 2 threads on acme/shop"),
        (
            act(operation="react", number=1, body="eyes"),
            "react with eyes to a comment on acme/shop#1",
        ),
        (act(operation="push", branch="fix"), "push the branch fix to acme/shop"),
        (act(operation="update-pr", number=1), "change the title or text of acme/shop#1"),
        (
            act(operation="update-pr", number=1, head="a" * 40, branch="b"),
            "update the pull request acme/shop#1: b to aaaaaaa",
        ),
        (act(operation="delete-branch", branch="b"), "delete the branch b of acme/shop"),
        (act(operation="open-issue", title="Old"), "open an issue in acme/shop: Old"),
        (
            act(operation="open-issue", title="Old", number=2),
            "update the issue acme/shop#2: Old",
        ),
    ],
)
def test_its_title_says_it_exactly(one: Act, words: str) -> None:
    assert title(one) == words


def test_a_review_names_its_prompt_and_an_undo_its_run() -> None:
    post, undo = act(title="licences"), act(operation="undo", title="ab12")
    assert (post.prompt, post.undone_run) == ("licences", "")
    assert (undo.prompt, undo.undone_run) == ("", "ab12")
    assert act().prompt == ""


def test_a_newer_review_takes_the_place_of_an_older_one_and_of_no_other() -> None:
    one = act(number=3, head="a" * 40, body="first")
    assert subject(one) == subject(act(number=3, head="b" * 40, repository="Acme/Shop"))
    for other in (
        act(number=4),
        act(number=3, operation="check"),
        act(number=3, forge="bitbucket"),
    ):
        assert subject(one) != subject(other)
    for operation in ("reply", "react", "resolve", "dismiss"):
        first, second = (act(operation=operation, number=3, targets=(one,)) for one in "12")
        assert subject(first) != subject(second)
    comments = [act(operation="comment", number=3, title=one) for one in ("a", "b", "a")]
    assert subject(comments[0]) == subject(comments[2]) != subject(comments[1])
    assert fingerprint(one) != fingerprint(act(number=3, head="b" * 40, body="first"))


def test_a_newer_pull_request_of_a_job_takes_the_place_of_an_older_one() -> None:
    of_job: dict[str, Any] = {"operation": "open-pr", "head": "a" * 40, "branch": "gatehouse/a-1"}
    opens = act(**of_job)
    update = act(**of_job | {"operation": "update-pr", "number": 3, "targets": ("b" * 40,)})
    assert (opens.is_of_job, act(operation="open-pr", branch="b").is_of_job) == (True, False)
    assert subject(opens) == subject(update) != subject(act(**of_job | {"branch": "gatehouse/b"}))
    issues = [act(operation="open-issue", title=one) for one in ("a", "b", "a")]
    assert subject(issues[0]) == subject(issues[2]) != subject(issues[1])


def test_scope_and_secrets_count_and_older_acts_keep_their_fingerprints() -> None:
    plain = act(number=3)
    assert fingerprint(plain) == "dcf6aba952039af84ecf8d48131b58b01e4d65f7f9d1b45c8bb3b8274b749bda"
    each = [act(number=3, **more) for more in ({"scope": ("a",)}, {"secrets": True})]
    assert len({fingerprint(one) for one in (plain, *each)}) == 3


def test_it_is_stored_whole() -> None:
    one = act(number=3, comments=(), targets=("7", "review:8"))
    assert decode(encode(one)) == one
