"""The sandbox's git configuration: which addresses go to the helper, and which don't."""

from supervisor.core.git.remote_helper import KnownRemote, sandbox_config


def rules(*urls: str) -> set[str]:
    """The beginnings of addresses that go to the helper."""
    remotes = [KnownRemote(".", "origin", one) for one in urls]
    values = list(sandbox_config({}, remotes))
    found = {value for key, value in values if key.endswith(".insteadof")}
    assert found == {value for key, value in values if key.endswith(".pushinsteadof")}
    assert all(f"url.gatehouse::{one}.insteadof" in dict(values) for one in found)
    return found


def test_each_spelling_of_an_address_has_a_rule() -> None:
    spelled = {"https://h.example/x/y", "https://h.example/x/y.git"}
    assert rules("https://h.example/x/y") == spelled
    assert rules("https://h.example/x/y.git/") == {*spelled, "https://h.example/x/y.git/"}
    assert rules("git@h.example:x/y.git") == {"git@h.example:x/y", "git@h.example:x/y.git"}
    assert rules("../r.git") == {"../r", "../r.git"}


def test_no_rule_is_the_beginning_of_any_path() -> None:
    assert rules(".", "..", "../", "/", "./.git") == set()


def test_the_helper_finds_name_and_folder_and_commits_have_a_name() -> None:
    remotes = [KnownRemote("sub/a b", "up", "https://h.example/x/y.git")]
    values = dict(sandbox_config({"user.name": "Ada"}, remotes))
    assert values["gatehouse.https://h.example/x/y.known"] == "up sub/a b"
    assert values["user.name"] == "Ada"
    assert values["protocol.gatehouse.allow"] == "always"
