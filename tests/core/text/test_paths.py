# ruff: noqa: RUF001 (look-alikes are what is tested)
"""Paths of files and URLs, and the globs over both."""

import pytest

from supervisor.core.policy.file_rules import check_pattern
from supervisor.core.text.globs import Glob, escape, has_wildcard
from supervisor.core.text.paths import canonical, fold, is_git_name, leaves
from supervisor.core.text.urls import normalise_path, split_authority, split_url
from supervisor.errors import PolicyError
from tests.tables import each_row


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a", "a"),
        ("./a", "a"),
        ("a//b", "a/b"),
        ("a/./b/", "a/b"),
        ("..a/b..", "..a/b.."),
        ("a b", "a b"),
        (".env", ".env"),
        ("a\\b", "a\\b"),
    ],
)
def test_a_path_has_one_spelling(path: str, text: str) -> None:
    assert canonical(path).text == text
    assert not canonical(path).is_odd


@each_row("path", ["", ".", "./", "/", "/a", "..", "a/..", "../a", "a/../b", "a\x00b", "x" * 5000])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError):
        canonical(path)


@pytest.mark.parametrize(
    "path", ["a\nb", "a\x1bb", "a\u202eb", "a\u200bb", "\ud800", "a\u2028b", "\x9b"]
)
def test_what_can_t_be_shown_is_odd(path: str) -> None:
    assert canonical(path).is_odd


def test_names_that_are_not_utf_8_come_in_base64() -> None:
    assert canonical("", "YS//").is_odd == "a name that isn't UTF-8"
    assert canonical("ignored", "YS9i").text == "a/b"
    for bad in ("", "%", "Li4v", "L2E=", "YQBi"):
        with pytest.raises(ValueError):
            canonical("a", bad)


@each_row(
    "name",
    [
        ".git",
        ".GIT",
        ".gIt",
        ".git.",
        ".git ",
        ".git. .",
        "git~1",
        "GIT~9",
        ".g\u200cit",
        "\ufeff.git",
        ".git:stream",
        "x\\.git",
        "．git",
        ".g\u0131t"[:2] + "it",
    ],
)
def test_every_spelling_of_git_is_git(name: str) -> None:
    assert is_git_name(name)


@pytest.mark.parametrize(
    "name", [".gitignore", "git", "agit", ".gita", "git~", "git~x", ".gi", "x.git", ".g it"]
)
def test_other_names_are_not_git(name: str) -> None:
    assert not is_git_name(name)


def test_folding_joins_spellings() -> None:
    assert fold("Straße/CAFE\u0301") == fold("STRASSE/café")
    assert fold("a./b ") == "a/b"
    assert fold("a／b") != fold("a/b")
    assert fold("...") == "..."


@pytest.mark.parametrize(
    ("path", "target", "expected"),
    [
        ("a/l", "../b", False),
        ("a/l", "../../b", True),
        ("l", "..", True),
        ("l", "a/../b", True),
        ("x/y/A", "../..", False),
        ("B", "x/y/A/../..", True),
        ("x/B", "../x/./y//A/..", True),
        ("l", "/x", True),
        ("a/b/l", "../../c", False),
    ],
)
def test_a_link_leaves_or_stays(path: str, target: str, expected: bool) -> None:
    assert leaves(path, target) is expected


@each_row(
    ("glob", "path", "expected"),
    [
        ("src/*", "src/a", True), ("src/*", "src/a/b", False), ("src/*", "src", False), ("src/**",
         "src", True), ("src/**", "src/a/b", True),
        ("src/**", "srcs", False), ("**", "a/b", True), ("**/a", "a", True), ("**/a", "x/y/a",
         True), ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True), ("a/**/b", "a/x/bb", False), ("a/**/b/**/c", "a/b/b/c/c",
         True), ("a/**/b/*/c", "a/b/b/x/c", True),
        ("*.py", ".py", True), ("*.py", "a.pyc", False), ("?", "a", True), ("?", "ab", False), ("?",
         "/", False), ("[ab]", "b", True),
        ("[!ab]", "c", True), ("[!ab]", "a", False), ("[^a]", "b", True), ("[a-c]x", "bx", True),
        ("[z-a]", "z", False), ("[]]", "]", True),
        ("a[[]b]", "a[b]", True), ("a*b*c", "axxbyyc", True), ("a*b*c", "ac", False), ("*a*", "bab",
         True), ("a/*/c", "a//c", True),
        ("x.y", "xzy", False), ("(a|b)", "a", False), ("simple/*", "simple/", True), ("a\nb",
         "a\nb", True), ("*", "a\nb", True),
    ],
)  # fmt: skip
def test_a_glob_matches_whole_paths(glob: str, path: str, expected: bool) -> None:
    assert Glob(glob).matches(path) is expected


def test_an_escaped_path_is_spelled_out() -> None:
    for path in ("a/b", "app/[id]/p*?.tsx", "[[]", "a]b"):
        glob = Glob(escape(path))
        assert glob.literal == path
        assert glob.matches(path)
        assert not has_wildcard(glob.text)
    assert Glob("a*").literal is None


def test_a_hostile_name_comes_to_an_end() -> None:
    """Each of these takes years where wildcards give back what they took; here the test's time
    limit is far away."""
    assert not Glob("**/" + "*a" * 30 + "/x").matches("/".join(["a" * 250] * 15))
    assert not Glob("/".join(["**/a"] * 20 + ["b"])).matches("/".join(["a"] * 2000))
    assert not Glob("*" + "a*" * 60 + "c").matches("a" * 4000 + "b")


@pytest.mark.parametrize(
    "pattern",
    [
        "/etc/**",
        "~/x",
        "src/",
        "a/../b",
        "**.env",
        "a**/b",
        "src/[",
        "*" * 3 + "x",
        "a/" + "*/" * 70 + "b",
    ],
)
def test_a_pattern_that_would_surprise_is_refused(pattern: str) -> None:
    with pytest.raises(PolicyError) as refused:
        check_pattern(pattern, "deny")
    assert refused.value.remedy


# -- paths of URLs --------------------------------------------------------------------------------
@each_row(
    ("target", "text"),
    [
        ("/a/b", "/a/b"), ("/a?x=%2f..", "/a"), ("/a/./b", "/a/b"), ("/a/../b", "/b"), ("/a/..",
         "/"), ("/a/.", "/a/"), ("/%7Eme", "/~me"),
        ("/%61%2E%2e/b", "/a../b"), ("/a/%2e%2e/b", "/b"), ("/caf%C3%A9", "/café"), ("/a%20b",
         "/a b"), ("/a//b", "/a//b"), ("/100%25", "/100%"),
        ("/a;v=1/b", "/a;v=1/b"), ("/.well-known/x", "/.well-known/x"), ("/...", "/..."),
    ],
)  # fmt: skip
def test_a_path_of_a_url_is_normalised_once(target: str, text: str) -> None:
    path = normalise_path(target)
    assert path.text == text
    assert not path.ambiguous


@each_row(
    "target",
    ["/a%2fb", "/a%2Fb", "/a%5cb", "/a\\b", "/a%00b", "/a%252fb", "/%2561", "/a%zz", "/a%",
     "/%c0%ae", "/%ff", "/..", "/a/../..", "/%2e%2e",
     "/a//../b", "/..;/a", "/a/.;x/b", "/..%3b/a", "/a%0ab", "/a\x00", "a", "*", "",
     "/" + "a" * 20_000, "/\ud800"],
)  # fmt: skip
def test_a_path_with_two_readings_is_ambiguous(target: str) -> None:
    path = normalise_path(target)
    assert path.ambiguous
    assert path.readings


@pytest.mark.parametrize(
    ("target", "reading"),
    [
        ("/x%2f..%2fadmin", "/admin"),
        ("/%2561dmin", "/admin"),
        ("/x\\..\\admin", "/admin"),
        ("/..;/admin", "/admin"),
        ("/admin%00.png", "/admin"),
        ("//x//../admin", "/admin"),
    ],
)
def test_what_a_lenient_server_could_read_is_among_the_readings(target: str, reading: str) -> None:
    assert reading in normalise_path(target).readings


def test_a_url_is_split_strictly() -> None:
    url = split_url("HTTPS://Example.com:8443/a?b#c")
    assert (url.scheme, url.host, url.port, url.path) == ("https", "Example.com", 8443, "/a?b")
    assert split_url("http://a?x").path == "/?x"
    assert split_url("http://[::1]").port == 80
    assert split_authority("a") == ("a", None)
    for bad in (
        "a",
        "//a",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://a:",
        "http://u@a",
        "http://a:70000",
        "http://a\\b",
        "http://[::1",
        "http://:80",
    ):
        with pytest.raises(ValueError):
            split_url(bad)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("./b", False), (".//b/.", False), ("./../../b", True), ("../b/..", True)],
)
def test_a_link_s_dots_and_empty_segments_lead_nowhere(target: str, expected: bool) -> None:
    assert leaves("a/link", target) is expected


def test_a_path_is_judged_up_to_its_longest() -> None:
    longest = "/" + "a" * 16_383
    assert normalise_path(f"{longest}?more").text == longest
    assert not normalise_path(longest).ambiguous
    assert "too long" in normalise_path(f"{longest}a").ambiguous
    assert canonical("a" * 4096).text == "a" * 4096
    with pytest.raises(ValueError, match="too long"):
        canonical("a" * 4097)
