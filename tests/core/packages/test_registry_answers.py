"""What registries' answers say of a version."""

import contextlib
import json
from typing import Any

import pytest

from supervisor.core.packages import registry_answers
from supervisor.core.packages.registry_answers import (
    MOST_ADDRESSES,
    RegistryFacts,
    address,
    crates_config,
    crates_config_address,
    file_hosts,
    host_of,
    project_link,
)
from tests.tables import each_row

AT = 1577934245.0


def facts(kind: str, body: bytes, version: str) -> RegistryFacts:
    return registry_answers.facts(kind, body, [version]).get(version, RegistryFacts())


@pytest.mark.parametrize(
    ("kind", "name", "version", "wanted"),
    [
        ("npm", "@s/b", "1", "https://x.test/root/@s%2Fb"),
        ("pypi", "A.b", "1", "https://x.test/root/a-b/"),
        ("crates", "itoa", "1.0.0", "https://x.test/root/api/v1/crates/itoa/1.0.0"),
        ("go", "x.test/A/b", "v1.0.0-RC", "https://x.test/root/x.test/!a/b/@v/v1.0.0-!r!c.info"),
        ("other", "a", "1", ""),
    ],
)
def test_addresses(kind: str, name: str, version: str, wanted: str) -> None:
    assert address(kind, "https://x.test/root", name, version) == wanted


def test_an_index_of_crates_without_an_api_tells_nothing() -> None:
    assert address("crates", "", "itoa", "1") == ""
    assert crates_config_address("sparse+https://x.test/index/") == (
        "https://x.test/index/config.json"
    )
    assert crates_config(b'{"api": "https://a.test", "dl": "https://d.test/x"}') == (
        "https://a.test",
        "https://d.test/x",
    )
    assert crates_config(b"{}") == crates_config(b"") == crates_config(b"[]") == ("", "")


def npm(**version: Any) -> bytes:
    return json.dumps(
        {"versions": {"1": version}, "time": {"1": "2020-01-02T03:04:05.000Z"}}
    ).encode()


def test_npm() -> None:
    body = npm(
        license="MIT",
        deprecated="use b",
        scripts={"postinstall": "x"},
        dist={"unpackedSize": 5, "tarball": "https://x.test/t", "integrity": "sha512-a"},
    )
    assert facts("npm", body, "1") == RegistryFacts(
        AT, 5, "MIT", True, "deprecated: use b", "https://x.test/t", "sha512-a"
    )
    assert facts("npm", npm(license={"type": "MIT"}), "1") == RegistryFacts(
        AT, None, None, False, "", ""
    )
    assert facts("npm", npm(hasInstallScript=True), "1").has_scripts


def test_pypi() -> None:
    files = [
        {
            "filename": "a-1.tar.gz",
            "upload-time": "2020-01-02T03:04:06",
            "size": 9,
            "hashes": {"sha256": "0f"},
        },
        {
            "filename": "a-1-py3-none-any.whl",
            "upload-time": "2020-01-02T03:04:05Z",
            "size": 7,
            "yanked": "broken",
            "url": "https://files.test/a.whl",
            "hashes": {"sha256": "ff"},
        },
        {"filename": "a-2.zip", "upload-time": "nonsense", "yanked": True},
    ]
    body = json.dumps({"files": files}).encode()
    assert facts("pypi", body, "1") == RegistryFacts(
        AT, 7, None, None, "yanked: broken", "https://files.test/a.whl", "sha256:0f sha256:ff"
    )
    assert facts("pypi", body, "2") == RegistryFacts(None, None, None, None, "yanked")
    assert facts("pypi", body, "3") == RegistryFacts()


def test_the_others() -> None:
    time = "2020-01-02T03:04:05Z"
    crate = {"created_at": time, "crate_size": 4, "license": "MIT", "yanked": True}
    assert facts("crates", json.dumps({"version": crate}).encode(), "1") == RegistryFacts(
        AT, 4, "MIT", None, "yanked"
    )


@pytest.mark.parametrize(
    ("addresses", "link"),
    [
        (
            ["Homepage, https://x.test", "Change-Log, https://x.test/changes"],
            "https://x.test/changes",
        ),
        (["Source Code, https://x.test/a.git", "Docs, https://x.test/docs"], "https://x.test/a"),
        (["Changelog, javascript:alert(1)", "homepage,https://x.test/h"], "https://x.test/h"),
        (["Changelog", 7, None], ""),
        ([], ""),
        (["x, https://x.test"] * MOST_ADDRESSES + ["Homepage, https://x.test"], ""),
    ],
)
def test_where_a_python_project_s_changes_are_read(addresses: list[object], link: str) -> None:
    assert project_link(addresses) == link


def test_go() -> None:
    said = {"Version": "v1.0.0", "Time": "2020-01-02T03:04:05Z"}
    assert facts("go", json.dumps(said).encode(), "v1.0.0") == RegistryFacts(AT, has_scripts=False)
    assert facts("go", json.dumps(said).encode(), "v1.0.1") == RegistryFacts()
    said |= {"Origin": {"VCS": "git", "URL": "https://x.test/a"}}  # type: ignore[dict-item]
    assert facts("go", json.dumps(said).encode(), "v1.0.0").link == "https://x.test/a"


@each_row("size", ["5", -1, 2**60, True, None, []])
@each_row("time", ["0001-01-01T00:00:00+14:00", "9999-99", 7, "x" * 100])
def test_what_is_not_what_it_should_be_is_unknown(size: object, time: object) -> None:
    """It is stored: what can't be written down would leave a grant unsettled."""
    version = {"license": "a\ud800", "deprecated": "b\ud800" * 500, "dist": {"unpackedSize": size}}
    found = facts(
        "npm", json.dumps({"versions": {"1": version}, "time": {"1": time}}).encode(), "1"
    )
    assert (found.size, found.licence) == (None, None)
    assert found.published_at is None or found.published_at < 0
    assert found.warning.isascii()


@each_row("kind", ["npm", "pypi", "crates", "go"])
@each_row("body", [b"", b"1", b"{}", b"[]", b'"x"'])
def test_what_is_no_answer_is_a_value_error_or_says_nothing(kind: str, body: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert facts(kind, body, "1") == RegistryFacts()


def test_hosts() -> None:
    page = {"files": [{"url": "https://files.test/a"}, {"url": "../b"}, {"url": "ftp://x/y"}]}
    assert file_hosts(json.dumps(page).encode(), "http://x.test:81/simple/a/") == {
        ("files.test", 443),
        ("x.test", 81),
    }
    with pytest.raises(ValueError, match="can't be read"):
        file_hosts(b"{}", "http://x.test/")
    assert host_of("https://X.test/a") == ("x.test", 443)
    for odd in (
        "x.test",
        "https://",
        "https://x.test:bad/",
        "https://[x",
        "file:///a",
        "http://é.test/",
        "http://a b/",
    ):
        assert host_of(odd) is None


@pytest.mark.parametrize(
    ("said", "link"),
    [
        ({"type": "git", "url": "git+https://x.test/a/b.git"}, "https://x.test/a/b"),
        ("https://x.test/a", "https://x.test/a"),
        ("github:a/b", ""),
        ({"url": "javascript:alert(1)"}, ""),
        ({"url": "https://x.test/" + "a" * 300}, ""),
        ({"url": "https://x.test/a b"}, ""),
        ({"url": ["https://x.test"]}, ""),
        (None, ""),
    ],
)
def test_a_repository_is_linked_where_a_browser_opens_it(said: object, link: str) -> None:
    assert facts("npm", npm(repository=said), "1").link == link
