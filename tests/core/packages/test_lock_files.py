"""What lock files name, in every format."""

import json

import pytest

from supervisor.core.packages.lock_files import MOST_CHARS, MOST_YAML_CHARS, Locked, locks_in

NPM = json.dumps(
    {
        "packages": {
            "": {"name": "app"},
            "node_modules/a": {
                "version": "1.0.0",
                "resolved": "https://x.test/a.tgz",
                "license": "MIT",
                "hasInstallScript": True,
            },
            "node_modules/a/node_modules/@s/b": {"version": "2.0.0", "license": {"type": "MIT"}},
            "node_modules/here": {"link": True, "resolved": "packages/here"},
            "packages/here": {"version": "0.1.0"},
        }
    }
)
CARGO = """
[[package]]
name = "app"
version = "0.1.0"

[[package]]
name = "itoa"
version = "1.0.1"
source = "registry+https://x.test/index"
"""
UV = """
[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }

[[package]]
name = "six"
version = "1.16.0"
source = { registry = "https://x.test/simple" }
wheels = [{ url = "https://files.test/six.whl", hash = "sha256:1" }]
"""
PIP = json.dumps(
    {
        "install": [
            {
                "metadata": {
                    "name": "six",
                    "version": "1.16.0",
                    "license": "MIT",
                    "project_url": ["Changelog, https://x.test/six/changes"],
                },
                "download_info": {
                    "url": "https://files.test/six-1.16.0-py2.py3-none-any.whl",
                    "archive_info": {"hashes": {"sha256": "1"}},
                },
            },
            {
                "metadata": {"name": "built", "version": "1", "license": "line\nline"},
                "download_info": {
                    "url": "https://files.test/built-1.tar.gz#sha256=0",
                    "archive_info": {"hash": "sha256=2"},
                },
            },
        ]
    }
)

PNPM = """
lockfileVersion: '9.0'
importers:
  .:
    dependencies:
      '@s/b':
        specifier: ^1.0.0
        version: 1.0.0(a@1.1.0)
packages:
  '@s/b@1.0.0':
    resolution: {integrity: sha512-b}
  a@1.1.0:
    resolution: {integrity: sha512-a, tarball: https://x.test/a.tgz}
snapshots:
  '@s/b@1.0.0(a@1.1.0)':
    dependencies:
      a: 1.1.0
  a@1.1.0: {}
"""
HASH = f"h1:{'a' * 43}="
GO = f"""module x.test/app

go 1.17

require x.test/one v1.0.0

require (
\tx.test/Two/v2 v2.0.1-rc // indirect
\tnonsense
)

exclude (
\tx.test/three v1.0.0
)
replace x.test/one => ../one
x.test/one v1.0.0 {HASH}
x.test/one v1.0.0/go.mod {HASH}
x.test/four v1.0.0 {HASH}
"""

CASES = [
    (
        "pnpm-lock.yaml",
        PNPM,
        [
            Locked("@s/b", "1.0.0", integrity="sha512-b"),
            Locked("a", "1.1.0", "https://x.test/a.tgz", integrity="sha512-a"),
        ],
    ),
    (
        "go.mod",
        GO,
        [Locked("x.test/one", "v1.0.0", integrity=HASH), Locked("x.test/Two/v2", "v2.0.1-rc")],
    ),
    (
        "go.sum",
        GO,
        [
            Locked("x.test/one", "v1.0.0", integrity=HASH),
            Locked("x.test/four", "v1.0.0", integrity=HASH),
        ],
    ),
    (
        "package-lock.json",
        NPM,
        [
            Locked("a", "1.0.0", "https://x.test/a.tgz", True, "MIT"),
            Locked("@s/b", "2.0.0", "", False, None),
        ],
    ),
    ("Cargo.lock", CARGO, [Locked("itoa", "1.0.1")]),
    (
        "uv.lock",
        UV,
        [Locked("six", "1.16.0", "https://files.test/six.whl", integrity="sha256:1")],
    ),
    (
        "pip-report.json",
        PIP,
        [
            Locked(
                "six",
                "1.16.0",
                "https://files.test/six-1.16.0-py2.py3-none-any.whl",
                False,
                "MIT",
                "sha256:1",
                "https://x.test/six/changes",
            ),
            Locked(
                "built", "1", "https://files.test/built-1.tar.gz#sha256=0", True, None, "sha256:2"
            ),
        ],
    ),
    (
        "uv-pip.txt",
        "Would install 2 packages\n + six==1.16.0\n - six==1.15.0\n ~ idna==3.1\n",
        [Locked("six", "1.16.0"), Locked("idna", "3.1")],
    ),
]


@pytest.mark.parametrize(("file", "text", "wanted"), CASES, ids=lambda case: str(case)[:20])
def test_each_format_is_read(file: str, text: str, wanted: list[Locked]) -> None:
    assert list(locks_in(file, text).values()) == wanted


def test_nothing_is_no_package() -> None:
    assert locks_in("package-lock.json", " \n") == {}


@pytest.mark.parametrize(
    ("files", "url", "integrity"),
    [
        ('wheels = [{ url = "https://a.test", hash = "b" }]\nsdist = { url = "c", hash = "a" }',
         "https://a.test", "a b"),
        ('wheels = [{ url = "https://a.test", hash = "b" }]\nsdist = { url = "c" }',
         "https://a.test c", ""),
        ('wheels = [{ url = "https://a.test" }]', "https://a.test", ""),
        ('wheels = [{ path = "a" }]\nsdist = {}', "", ""),
        ("", "", ""),
    ],
)  # fmt: skip
def test_of_several_files_one_without_a_hash_makes_all_unknown(
    files: str, url: str, integrity: str
) -> None:
    text = f'[[package]]\nname = "a"\nversion = "1"\nsource = {{ registry = "x" }}\n{files}\n'
    found = locks_in("uv.lock", text)["a", "1"]
    assert (found.url, found.integrity) == (url, integrity)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("package-lock.json", "{"),
        ("package-lock.json", "[]"),
        ("package-lock.json", '{"packages": {"node_modules/a": {"version": 1}}}'),
        ("package-lock.json", '{"packages": {"node_modules/a\\ud800": {"version": "1"}}}'),
        ("package-lock.json", " " * (MOST_CHARS + 1)),
        ("package-lock.json", "[" * 100_000),
        ("Cargo.lock", "not toml"),
        ("uv.lock", "[[package]]\nsource = {registry = 'x'}\n"),
        ("pip-report.json", "{}"),
        ("pnpm-lock.yaml", "a: &b 1\nc: *b\n"),
        ("pnpm-lock.yaml", "lockfileVersion: '6.0'\n"),
        ("pnpm-lock.yaml", "- a\n"),
        ("pnpm-lock.yaml", "lockfileVersion: '9.0'\npackages: {a@1: {}}\n"),
        ("pnpm-lock.yaml", "#" * (MOST_YAML_CHARS + 1)),
    ],
)
def test_what_cannot_be_read_is_a_value_error(file: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        locks_in(file, text)


ONE = {"version": "1.0.0", "resolved": "https://x.test/a.tgz", "integrity": "sha512-a"}


@pytest.mark.parametrize(
    "other",
    [
        ONE | {"integrity": "sha512-b"},
        {"version": "1.0.0", "resolved": "https://x.test/b.tgz"},
        {"resolved": "https://x.test/b.tgz"},
    ],
)
def test_a_package_hides_behind_no_other(other: dict[str, str]) -> None:
    """Two files by one name and version, or one without a version."""
    for first, last in ((ONE, other), (other, ONE)):
        packages = {"node_modules/a": first, "node_modules/b/node_modules/a": last}
        with pytest.raises(ValueError, match=r"different files|KeyError"):
            locks_in("package-lock.json", json.dumps({"packages": packages}))


@pytest.mark.parametrize("other", [ONE, {"version": "1.0.0"}])
def test_one_file_may_be_named_twice_or_be_bundled(other: dict[str, str]) -> None:
    for first, last in ((ONE, other), (other, ONE)):
        packages = {"node_modules/a": first, "node_modules/b/node_modules/a": last}
        found = locks_in("package-lock.json", json.dumps({"packages": packages}))
        assert [one.integrity for one in found.values()] == ["sha512-a"]


def test_pins_of_a_file_of_requirements() -> None:
    text = "-r base.txt\n# six==1\nsix == 1.16.0  # why\nweb[ssl]==2.0 ; os_name > '3'\na>=1\n"
    assert {*locks_in("requirements.txt", text)} == {("six", "1.16.0"), ("web", "2.0")}
    text = '[project]\nversion = "1"\ndependencies = ["six==1.16.0", "web[ssl] == 2.0"]\n'
    assert {*locks_in("requirements.txt", text)} == {("six", "1.16.0"), ("web", "2.0")}
