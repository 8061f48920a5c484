"""Which credentials git sends, and where to."""

import base64

import pytest

from supervisor.core.network.credentials import git_settings
from tests.core.network.test_credentials import one


def test_git_sends_the_placeholder_as_a_password() -> None:
    found = git_settings(
        {
            "place": one("{preset: github}"),
            "other": one("{preset: openai}"),
            "third": one("{preset: gitlab}"),
        }
    )
    assert found["GIT_CONFIG_COUNT"] == "2"
    assert found["GIT_CONFIG_KEY_0"] == "http.https://github.com/.extraHeader"
    assert (
        found["GIT_CONFIG_VALUE_0"]
        == "Authorization: Basic " + base64.b64encode(b"x-access-token:place").decode()
    )
    assert git_settings({"place": one("{preset: openai}")}) == {}


@pytest.mark.parametrize(
    ("paths", "sent_to"),
    [
        ("/myorg/**", ["/myorg/"]),
        (
            "[/repos/myorg/**, /myorg/*, /other/x.git]",
            ["/repos/myorg/", "/myorg/", "/other/x.git/"],
        ),
        # git sends the header of each that fits, and two are one too many.
        ("[/myorg/x/**, /myorg/**, /myorg/*/info]", ["/myorg/"]),
        ("[/myorgs/**, /myorg/**]", ["/myorgs/", "/myorg/"]),
        ("[/my*/x, /a/**]", ["/"]),
        ("/**", ["/"]),
    ],
)
def test_git_sends_it_to_the_bound_paths_only(paths: str, sent_to: list[str]) -> None:
    """Elsewhere it would be refused: a public repository beside the bound ones is cloned without
    it."""
    found = git_settings({"place": one(f"{{preset: github, paths: {paths}}}")})
    assert found["GIT_CONFIG_COUNT"] == str(len(sent_to))
    keys = [found[f"GIT_CONFIG_KEY_{number}"] for number in range(len(sent_to))]
    assert keys == [f"http.https://github.com{path}.extraHeader" for path in sent_to]


def test_git_sends_it_to_a_server_of_ones_own() -> None:
    found = git_settings(
        {"place": one("{preset: gitlab, hosts: [git.example.org, 'git.example.org:8443']}")}
    )
    assert [found[f"GIT_CONFIG_KEY_{number}"] for number in range(2)] == [
        "http.https://git.example.org/.extraHeader",
        "http.https://git.example.org:8443/.extraHeader",
    ]
    assert git_settings({"place": one("{preset: pypi, hosts: packages.example.org}")}) == {}
