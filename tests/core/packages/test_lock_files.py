"""What lock files name, in every format."""

import json

import pytest

from supervisor.core.packages.lock_files import Locked, locks_in

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
PNPM = """
lockfileVersion: '9.0'
packages:
  '@s/b@2.0.0(react@18.0.0)':
    resolution: {integrity: x}
  a@1.0.0:
    requiresBuild: true
  /old/1.2.3:
    dev: true
  strange: {}
  text@1.0.0: x
"""
YARN = """# yarn lockfile v1


"@s/b@^2.0.0":
  version "2.0.0"
  resolved "https://x.test/b.tgz#abc"

a@^1.0.0, a@^1.0.1:
  version "1.0.1"
"""
BERRY = """
__metadata:
  version: 8
"a@npm:^1.0.0":
  version: 1.0.1
  resolution: "a@npm:1.0.1"
"app@workspace:.":
  version: 0.0.0-use.local
  resolution: "app@workspace:."
"""
BUN = """{
  "packages": {
    "a": ["a@1.0.0", "", {}, "sha512-x"],
    "@s/b": ["@s/b@2.0.0", "https://x.test/b.tgz", {}, "sha512-x",],
  },
}"""
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
POETRY = """
[[package]]
name = "six"
version = "1.16.0"
files = [{ file = "six.whl", hash = "sha256:1" }]
"""
PIP = json.dumps(
    {
        "install": [
            {
                "metadata": {"name": "six", "version": "1.16.0", "license": "MIT"},
                "download_info": {"url": "https://files.test/six-1.16.0-py2.py3-none-any.whl"},
            },
            {
                "metadata": {"name": "built", "version": "1", "license": "line\nline"},
                "download_info": {"url": "https://files.test/built-1.tar.gz#sha256=0"},
            },
        ]
    }
)

CASES = [
    (
        "package-lock.json",
        NPM,
        [
            Locked("a", "1.0.0", "https://x.test/a.tgz", True, "MIT"),
            Locked("@s/b", "2.0.0", "", False, None),
        ],
    ),
    (
        "pnpm-lock.yaml",
        PNPM,
        [
            Locked("@s/b", "2.0.0", "", None),
            Locked("a", "1.0.0", "", True),
            Locked("old", "1.2.3", "", None),
            Locked("text", "1.0.0", "", None),
        ],
    ),
    ("yarn.lock", YARN, [Locked("@s/b", "2.0.0", "https://x.test/b.tgz"), Locked("a", "1.0.1")]),
    ("yarn.lock", BERRY, [Locked("a", "1.0.1")]),
    ("bun.lock", BUN, [Locked("a", "1.0.0"), Locked("@s/b", "2.0.0", "https://x.test/b.tgz")]),
    ("Cargo.lock", CARGO, [Locked("itoa", "1.0.1")]),
    ("uv.lock", UV, [Locked("six", "1.16.0", "https://files.test/six.whl")]),
    ("poetry.lock", POETRY, [Locked("six", "1.16.0")]),
    (
        "go.sum",
        "x.test/m v1.0.0 h1:a=\nx.test/m v1.0.0/go.mod h1:b=\nodd\n",
        [Locked("x.test/m", "v1.0.0")],
    ),
    (
        "pip-report.json",
        PIP,
        [
            Locked(
                "six", "1.16.0", "https://files.test/six-1.16.0-py2.py3-none-any.whl", False, "MIT"
            ),
            Locked("built", "1", "https://files.test/built-1.tar.gz#sha256=0", True, None),
        ],
    ),
    (
        "uv-pip.txt",
        "Would install 2 packages\n + six==1.16.0\n - six==1.15.0\n ~ idna==3.1\n",
        [Locked("six", "1.16.0"), Locked("idna", "3.1")],
    ),
    (
        "gem.txt",
        "Gems to install:\n  rake-13.0.6\n  nokogiri-1.15.0-x86_64-linux\n",
        [Locked("rake", "13.0.6"), Locked("nokogiri", "1.15.0-x86_64-linux")],
    ),
]


@pytest.mark.parametrize(("file", "text", "wanted"), CASES, ids=lambda case: str(case)[:20])
def test_each_format_is_read(file: str, text: str, wanted: list[Locked]) -> None:
    assert list(locks_in(file, text).values()) == wanted


def test_nothing_is_no_package() -> None:
    assert locks_in("package-lock.json", " \n") == {}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("package-lock.json", "{"),
        ("package-lock.json", "[]"),
        ("pnpm-lock.yaml", "a: [b"),
        ("pnpm-lock.yaml", "text"),
        ("bun.lock", '{"packages": {"a": []}}'),
        ("Cargo.lock", "not toml"),
        ("uv.lock", "[[package]]\nsource = {registry = 'x'}\n"),
        ("pip-report.json", "{}"),
    ],
)
def test_what_cannot_be_read_is_a_value_error(file: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        locks_in(file, text)
