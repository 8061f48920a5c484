"""Which remotes a configuration names, and how their addresses are spoken to."""

import pytest

from supervisor.core.git.remote_addresses import Addresses, protocol_of, remotes_in, shown_url
from tests.tables import each_row


def test_remotes_are_read_as_data() -> None:
    found = remotes_in(
        [
            ("remote.origin.url", "https://a.example/x"),
            ("remote.origin.url", "https://b.example/x"),
            ("remote.a.b.pushurl", "git@c.example:x"),
            ("remote.a.b.url", "https://c.example/x"),
            ("remote.origin.vcs", "ext"),
            ("remote.lonely.pushurl", "x"),
            ("remote.pushdefault", "a.b"),
            ("core.sshcommand", "evil"),
            ("remote.url", "nameless"),
        ]
    )
    assert found.push_default == "a.b"
    assert found.remotes == {
        "origin": Addresses(["https://a.example/x", "https://b.example/x"], []),
        "a.b": Addresses(["https://c.example/x"], ["git@c.example:x"]),
    }


@each_row(
    ("url", "protocol"),
    [
        ("https://x.example/y", "https"),
        ("http://x.example/y", "http"),
        ("git://x.example/y", "git"),
        ("ssh://me@x.example:22/y", "ssh"),
        ("git+ssh://x.example/y", "ssh"),
        ("git@x.example:y", "ssh"),
        ("file:///srv/x.git", "file"),
        ("/srv/x.git", "file"),
        ("./a:b", "file"),
        ("../x.git", "file"),
        ("", "file"),
    ],
)
def test_how_an_address_is_spoken_to(url: str, protocol: str) -> None:
    assert protocol_of(url) == protocol


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:word@x.example/a@b", "https://x.example/a@b"),
        ("https://me:w@rd@x.example/a", "https://x.example/a"),
        ("git@x.example:y", "git@x.example:y"),
        ("/srv/x.git", "/srv/x.git"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c true",
        "fd::7",
        "persistent-https://x.example/y",
        "HTTPS://x",
        "Ext::x",
        "https://x\nname\thttps://y",
    ],
)
def test_an_address_that_names_a_program_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"isn't started|no scheme|no address has"):
        protocol_of(url)
