"""What of a project a plan is made of: what asks the index, and the names of all else."""

import json
import tomllib

import pytest

from supervisor.core.packages.package_commands import parse_command
from supervisor.core.packages.plan_inputs import (
    MOST_CHARS,
    MOST_NAMED,
    PlanInputs,
    has_members,
    held,
    inputs,
    installed,
    requirements,
)
from tests.tables import each_row

GIT = "git+https://x.test/evil.git"


def npm(package: object = None, lock: object = None, npmrc: str = "", **more: str) -> PlanInputs:
    files = {"package.json": json.dumps(package or {}), **more}
    files |= {"package-lock.json": json.dumps(lock)} if lock else {}
    return inputs("npm", files | ({".npmrc": npmrc} if npmrc else {}))


@pytest.mark.parametrize(
    "wanted", ["^1.0.0", "1.x || >=2.0.0 <3", "latest", "", "*", "npm:@s/b@^1", "npm:b", "~1.2"]
)
def test_what_an_index_of_npm_answers_is_taken_over(wanted: str) -> None:
    found = npm({"name": "app", "scripts": {"install": "x"}, "dependencies": {"a": wanted}})
    written = json.loads(found.files["package.json"])
    assert written["dependencies"] == {"a": wanted}
    assert written["name"] == "app"
    assert "scripts" not in written
    assert found.unknown == ()


@each_row(
    "wanted",
    [GIT, "user/repo", "file:../a", "./a", ".", "../..", "/a", "~/a", "link:a", "workspace:*",
     "x.tgz", "https://x.test/a", "git@x.test:a", "npm:", "catalog:", "a" * 1001, 7, None,
     ["version"]],
)  # fmt: skip
def test_what_it_does_not_answer_is_named(wanted: object) -> None:
    found = npm({"dependencies": {"a": wanted}, "overrides": {"b": {"c": wanted}}})
    assert json.loads(found.files["package.json"])["dependencies"] == {}
    assert found.unknown[0] == "`a` of package.json doesn't come from the index"
    assert "override" in found.unknown[1]


def test_overrides_of_the_index_are_taken_over() -> None:
    overrides = {"a": {"b": "1.0.0"}, "c": "$c"}
    assert json.loads(npm({"overrides": overrides}).files["package.json"])["overrides"] == overrides


def test_workspaces_and_other_lock_files_are_named() -> None:
    found = inputs(
        "npm",
        {
            "package.json": '{"workspaces": ["a"]}',
            "npm-shrinkwrap.json": "{}",
            "package-lock.json": '{"dependencies": {}}',
        },
    )
    assert found.unknown == (
        "what the workspaces of package.json need",
        "what npm-shrinkwrap.json says",
        "what package-lock.json of an old form says",
    )


def test_a_lock_of_npm_keeps_what_comes_from_an_index() -> None:
    good = {"version": "1.0.0", "resolved": "https://x.test/a.tgz", "integrity": "sha512-a"}
    lock = {
        "packages": {
            "": {"name": "app", "devDependencies": {"a": "1", "e": GIT}, "workspaces": ["w"]},
            "node_modules/a": good | {"dependencies": {"b": "1", "evil": GIT}, "scripts": {}},
            "node_modules/g": {"version": "1.0.0", "resolved": GIT},
            "node_modules/l": {"link": True, "resolved": "w"},
            "node_modules/v": {"version": GIT},
            "node_modules/n": {"resolved": "https://x.test/n.tgz"},
            "node_modules/a/../../x": {"version": "1.0.0"},
            "w": {"version": "1.0.0"},
        }
    }
    found = npm(lock=lock)
    assert json.loads(found.files["package-lock.json"])["packages"] == {
        "": {"name": "app", "devDependencies": {"a": "1"}},
        "node_modules/a": good | {"dependencies": {"b": "1"}},
    }
    assert len(found.unknown) == 8


def test_of_the_configuration_only_indexes_and_how_to_resolve_are_taken_over() -> None:
    found = npm(
        npmrc="; comment\n# other\n\nregistry = 'https://x.test/'\n@s:registry=https://s.test/\n"
        "legacy-peer-deps=true\nsave-exact=${X}\nfund=false\nignore-scripts=false\ngit=./git\n"
        "@t:registry=https://$T.test/\n//x.test/:_authToken=${TOKEN}\n"
    )
    assert found.default == "https://x.test/"
    assert found.more == ("https://s.test/",)
    assert found.files[".npmrc"] == (
        "registry=https://x.test/\n@s:registry=https://s.test/\nlegacy-peer-deps=true\n"
    )
    assert [one.split("`")[1] for one in found.unknown] == [
        "save-exact",
        "git",
        "@t:registry",
        "//x.test/:_authToken",
    ]
    assert npm(npmrc="audit = ; the default\r\nregistry\t=\thttps://x.test/\r\r\n").unknown == ()


@pytest.mark.parametrize("blank", ["\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2028", "\ufeff"])
def test_a_line_that_npm_reads_otherwise_than_most_is_named(blank: str) -> None:
    """npm ends lines at CR and LF alone, and has blanks of its own."""
    line = f"registry=https://x.test/{blank}fund=x"
    for text in (
        line,
        f"registry{blank}=https://x.test/",
        f"@\x1bs{blank}:registry=https://x.test",
    ):
        found = npm(npmrc=f"{text}\n")
        assert found.files[".npmrc"] == ""
        assert found.default == ""
        assert len(found.unknown) == 1
    assert npm(npmrc=f"# a comment{blank}registry=https://x.test/\n").default == ""


@pytest.mark.parametrize(
    "line",
    ["registry=https://x.test/;a", "registry=https://x.test/#a", 'registry="https://x.test/\'',
     "registry=https://x\\.test/", '"registry"=https://x.test/', "'re'gistry=https://x.test/",
     'registry=""https://x.test/""', "registry", "[registry]"],
)  # fmt: skip
def test_no_index_is_taken_over_from_what_npm_unquotes_or_cuts(line: str) -> None:
    found = npm(npmrc=line)
    assert (found.files[".npmrc"], found.default) == ("", "")
    assert len(found.unknown) == 1


def test_only_so_much_is_named() -> None:
    found = npm({"dependencies": {f"a{number}": GIT for number in range(100)}})
    assert len(found.unknown) == MOST_NAMED


@each_row(
    ("manager", "files"),
    [
        ("npm", {"package.json": "{"}),
        ("npm", {"package.json": "[]"}),
        ("npm", {"package.json": '{"dependencies": []}'}),
        ("npm", {"package-lock.json": '{"packages": {"a": 1}}'}),
        ("npm", {"package.json": "[" * 100_000}),
        ("npm", {"package.json": " " * (MOST_CHARS + 1)}),
        ("uv", {"pyproject.toml": "x"}),
        ("uv", {"pyproject.toml": "[tool.uv]\nindex = [{}]"}),
        ("uv", {"pyproject.toml": "[project]\ndependencies = 7"}),
        ("cargo", {"Cargo.toml": 'target = "x"'}),
        ("cargo", {"Cargo.toml": "[features]\nx = 1979-05-27"}),
        ("cargo", {"Cargo.toml": '[features]\n"\\u007f" = []'}),
    ],
)
def test_what_can_not_be_read_is_a_value_error(manager: str, files: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        inputs(manager, files)


@pytest.mark.parametrize(
    ("manager", "manifest", "is_one"),
    [
        ("npm", '{"workspaces": ["a"]}', True),
        ("npm", '{"name": "app"}', False),
        ("npm", "{", True),
        ("npm", "[]", True),
        ("npm", " " * (MOST_CHARS + 1), True),
        ("uv", "[tool.uv.workspace]\nmembers = []", True),
        ("uv", "[tool.uv]\npackage = true", False),
        ("cargo", "[workspace]", True),
        ("cargo", "[package]\nname = 'a'", False),
    ],
)
def test_which_project_takes_folders_below_for_its_own(
    manager: str, manifest: str, is_one: bool
) -> None:
    assert has_members(manager, manifest) is is_one


def test_a_workspace_elsewhere_and_an_index_that_is_no_web_address_are_named() -> None:
    crate = inputs("cargo", {"Cargo.toml": '[package]\nname = "a"\nworkspace = "../b"'})
    assert crate.unknown == ("what the workspace that Cargo.toml names says",)
    for url in ("http://[", "file:///x"):
        found = inputs("uv", {"pyproject.toml": f'[[tool.uv.index]]\nurl = "{url}"'})
        assert found.more == ()
        assert found.unknown == ("an index of pyproject.toml that is no web address",)


# -- pip ------------------------------------------------------------------------------------------


def test_lines_of_requirements_are_joined_as_pip_joins_them() -> None:
    action = parse_command("pip install -r a.txt")
    text = (
        "a==1 \\\r\n    --hash=sha256:00 \\\r\n    --hash=sha256:ff\r\n# one \\\nb==2\t#\\\n"
        " # c\nd==\\\n4 \\\n# two\ne==5#no\nf \\\n"
    )
    given, _ = requirements(action, [], {"a.txt": text})
    assert given.files["requirements.txt"].splitlines() == [
        "a==1 --hash=sha256:00 --hash=sha256:ff",
        "b==2",
        "d==4",
        "f",
    ]
    assert given.unknown == ("`e==5#no` doesn't come from the index",)


def test_files_of_requirements_are_followed_and_what_no_index_answers_is_named() -> None:
    action = parse_command("pip install -r req/a.txt -c c.txt --upgrade six")
    given, missing = requirements(action, ["six"], {})
    assert sorted(missing) == ["c.txt", "req/a.txt"]
    files: dict[str, str | None] = {
        "c.txt": "idna==3.1\n",
        "req/a.txt": "# a comment\n\nrequests[socks] >= 2 ; python_version < '4'  # why\n"
        "a==1 \\\n  --hash=sha256:00ff\n-r b.txt\n--constraint=../c.txt\n-r a.txt\n"
        "-e .\n./here\ngit+https://x.test/y\nz @ https://x.test/z\n--no-binary :all:\n"
        "-r ../out.txt\n-r https://x.test/r\n-i https://i.test/simple\n"
        "--extra-index-url=https://e.test/simple\n--index-url nowhere\n",
        "req/b.txt": None,
    }
    given, missing = requirements(action, ["six"], files)
    assert missing == ()
    assert (
        given.files
        == {
            "requirements.txt": "six\nrequests[socks] >= 2 ; python_version < '4'\n"
            "a==1 --hash=sha256:00ff\n",
            "constraints.txt": "idna==3.1\n",
        }
        or missing
    )
    assert given.default == "https://i.test/simple"
    assert given.more == ("https://e.test/simple",)
    assert given.runs
    assert len(given.unknown) == 10
    assert requirements(action, [], files | {"c.txt": "x" * (MOST_CHARS + 1)})[0].unknown


def test_an_environment_says_what_it_holds_by_name_and_version_alone() -> None:
    metadata = (
        "Metadata-Version: 2.1\nName: held-by\nVersion: 1.0\nRequires-Dist: six (>=1.0)\n"
        f"Requires-Dist: evil @ {GIT}\nX: y\n\nName: other\n"
    )
    assert installed([metadata, None, "Name: ../x\nVersion: 1\n", "Name: a\nVersion: /\n"]) == {
        "installed/held_by-1.0.dist-info/METADATA": (
            "Metadata-Version: 2.1\nName: held-by\nVersion: 1.0\nRequires-Dist: six (>=1.0)\n"
        )
    }


# -- uv and cargo ---------------------------------------------------------------------------------


def test_a_project_of_uv_s() -> None:
    text = f"""
[build-system]
build-backend = "evil"
[project]
name = "app"
dynamic = ["version"]
requires-python = ">=3.11"
dependencies = ["six  >=1", "evil @ {GIT}", "Over_There[x]>1"]
optional-dependencies = {{ extra = ["a"] }}
[dependency-groups]
dev = ["b", {{ include-group = "x" }}, {{ other = "y" }}]
[tool.uv]
package = true
constraint-dependencies = ["c<2"]
index = [{{ name = "i", url = "https://i.test/simple" }}]
sources = {{ over-there = {{ path = "x" }} }}
"""
    lock = """
version = 1
[[package]]
name = "six"
version = "1.0"
source = { registry = "https://x.test/simple" }
[[package]]
name = "app"
version = "1"
source = { editable = "." }
[[package]]
name = "here"
version = "1"
source = { path = "here" }
"""
    found = inputs("uv", {"pyproject.toml": text, "uv.lock": lock, "uv.toml": "x = 1"})
    assert tomllib.loads(found.files["pyproject.toml"]) == {
        "project": {
            "name": "app",
            "version": "0",
            "requires-python": ">=3.11",
            "dependencies": ["six >=1"],
            "optional-dependencies": {"extra": ["a"]},
        },
        "dependency-groups": {"dev": ["b", {"include-group": "x"}]},
        "tool": {"uv": {"constraint-dependencies": ["c<2"]}},
    }
    assert [one["name"] for one in tomllib.loads(found.files["uv.lock"])["package"]] == [
        "six",
        "app",
    ]
    assert found.more == ("https://i.test/simple",)
    assert len(found.unknown) == 6
    assert "project" not in tomllib.loads(inputs("uv", {}).files["pyproject.toml"])


def test_a_package_of_cargo_s() -> None:
    text = f"""
[package]
name = "app"
version = "0.1.0"
edition = {{ workspace = true }}
build = "evil.rs"
[features]
default = []
[dependencies]
a = "1"
b = {{ version = "1", default-features = false }}
c = {{ path = "c" }}
d = {{ git = "{GIT}" }}
[target."cfg(unix)".dependencies]
e = "1"
[workspace]
members = []
"""
    lock = """
version = 4
[[package]]
name = "app"
version = "0.1.0"
[[package]]
name = "a"
version = "1.0.0"
source = "registry+https://i.test/crates"
[[package]]
name = "d"
version = "1.0.0"
source = "git+https://x.test/d#00"
"""
    config = """
[source.crates-io]
replace-with = "near"
[source.near]
registry = "sparse+https://i.test/index/"
[source.far]
directory = "vendor"
[build]
rustc = "./evil"
"""
    files = {"Cargo.toml": text, "Cargo.lock": lock, ".cargo/config.toml": config}
    found = inputs("cargo", files)
    written = tomllib.loads(found.files["Cargo.toml"])
    assert written["package"] == {"name": "app", "version": "0.1.0"}
    assert written["dependencies"] == {"a": "1", "b": {"version": "1", "default-features": False}}
    assert written["target"]["cfg(unix)"]["dependencies"] == {"e": "1"}
    assert [one["name"] for one in tomllib.loads(found.files["Cargo.lock"])["package"]] == [
        "app",
        "a",
    ]
    assert found.default == "https://i.test/index/"
    assert set(tomllib.loads(found.files[".cargo/config.toml"])["source"]) == {"crates-io", "near"}
    assert found.runs
    assert len(found.unknown) == 6
    assert ".cargo/config.toml" not in inputs("cargo", {}).files
    assert not inputs("cargo", {}).runs


# -- pnpm -----------------------------------------------------------------------------------------

PNPM_LOCK = """lockfileVersion: '9.0'
settings: {autoInstallPeers: true, excludeLinksFromLockfile: false}
importers:
  .:
    dependencies:
      a: {specifier: ^1.0.0, version: 1.0.0(b@1.0.0)}
      evil: {specifier: 'file:..', version: 'file:..'}
packages:
  a@1.0.0:
    resolution: {integrity: sha512-a}
    engines: {node: '>=4'}
    hasBin: true
    os: [linux]
  b@1.0.0:
    resolution: {integrity: sha512-b, tarball: https://x.test/b.tgz}
  evil@1.0.0:
    resolution: {type: git, repo: 'ssh://x.test/evil', commit: abc}
  evil@https://x.test/evil.tgz:
    resolution: {integrity: sha512-c}
  evil@2.0.0:
    resolution: {integrity: sha512-c, tarball: 'file:evil.tgz'}
snapshots:
  a@1.0.0(b@1.0.0):
    dependencies: {b: 1.0.0, evil: 'link:..'}
    optional: true
  b@1.0.0: {}
  evil@file:..: {}
"""


def pnpm(package: object = None, **more: str) -> PlanInputs:
    names = {"lock": "pnpm-lock.yaml", "npmrc": ".npmrc", "hooks": ".pnpmfile.cjs"}
    names |= {"workspace": "pnpm-workspace.yaml"}
    files = {names[key]: text for key, text in more.items()}
    return inputs("pnpm", {"package.json": json.dumps(package or {}), **files})


def test_of_pnpm_what_an_index_answers_is_taken_over() -> None:
    found = pnpm({"dependencies": {"a": "^1.0.0"}, "packageManager": "x"}, lock=PNPM_LOCK)
    assert json.loads(found.files["package.json"])["dependencies"] == {"a": "^1.0.0"}
    assert json.loads(found.files["pnpm-lock.yaml"]) == {
        "lockfileVersion": "9.0",
        "settings": {"autoInstallPeers": True, "excludeLinksFromLockfile": False},
        "importers": {
            ".": {"dependencies": {"a": {"specifier": "^1.0.0", "version": "1.0.0(b@1.0.0)"}}}
        },
        "packages": {
            "a@1.0.0": {
                "resolution": {"integrity": "sha512-a"},
                "engines": {"node": ">=4"},
                "hasBin": True,
                "os": ["linux"],
            },
            "b@1.0.0": {"resolution": {"integrity": "sha512-b", "tarball": "https://x.test/b.tgz"}},
        },
        "snapshots": {
            "a@1.0.0(b@1.0.0)": {"dependencies": {"b": "1.0.0"}, "optional": True},
            "b@1.0.0": {},
        },
    }
    assert len(found.unknown) == 5
    assert not found.runs


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({"hooks": "x"}, "what .pnpmfile.cjs changes"),
        ({"npmrc": "script-shell=./x\n"}, "what `script-shell` in .npmrc changes"),
        ({"workspace": "patchedDependencies: {a: b}\n"},
         "what `patchedDependencies` in pnpm-workspace.yaml changes"),
    ],
)  # fmt: skip
def test_settings_of_pnpm_that_can_name_programs_are_named(more: dict[str, str], left: str) -> None:
    found = pnpm(None, **more)
    assert (found.unknown, found.runs) == ((left,), True)
    found = pnpm({"pnpm": {"overrides": {"a": "1"}, "onlyBuiltDependencies": []}})
    assert (found.unknown, found.runs) == (("what `pnpm` in package.json changes",), True)
    found = pnpm(None, lock="lockfileVersion: '9.0'\noverrides: {a: '1'}\n")
    assert (found.unknown, found.runs) == (("what `overrides` in pnpm-lock.yaml says",), False)


def test_how_old_releases_must_be_for_pnpm_is_taken_over() -> None:
    found = pnpm(None, workspace="minimumReleaseAge: 4320\nonlyBuiltDependencies: [a]\n")
    assert found.files["pnpm-workspace.yaml"] == "minimumReleaseAge: 4320\n"
    assert found.unknown == ()


@pytest.mark.parametrize(
    "more",
    [
        {"workspace": "packages: ['web/*']\n"},
        {"workspace": "a: *b\n"},
        {"workspace": "- a\n"},
        {"lock": "lockfileVersion: '9.0'\nimporters: {web: {}}\n"},
        {"lock": "lockfileVersion: '6.0'\n"},
    ],
)
def test_workspaces_of_pnpm_and_other_forms_are_not_planned(more: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"workspace|form|can't be read"):
        pnpm(None, **more)
    assert not has_members("pnpm", '{"workspaces": ["web"]}')


# -- go -------------------------------------------------------------------------------------------


def test_of_go_what_its_proxies_answer_is_taken_over() -> None:
    manifest = (
        "// A shop.\nmodule x.test/app // why\n\ngo 1.17\ntoolchain go1.22.1\n"
        "require x.test/one v1.0.0\nrequire (\n\tx.test/two/v2 v2.0.0 // indirect\n)\n"
        "exclude x.test/three v1.0.0\nretract [v1.0.0, v1.1.0]\n"
        "replace x.test/one => ../one\nreplace (\n\tx.test/two/v2 => x.test/evil v1.0.0\n)\n"
        'require "x.test/quoted" v1.0.0\n'
    )
    sums = f"x.test/one v1.0.0 h1:{'a' * 43}=\nx.test/one v1.0.0/go.mod h1:{'a' * 43}=\n"
    files = {"go.mod": manifest, "go.sum": f"{sums}nonsense\n", "go.work": "go 1.18\n"}
    found = inputs("go", files)
    assert found.files["go.mod"] == (
        "module x.test/app\ngo 1.17\ntoolchain go1.22.1\nrequire x.test/one v1.0.0\n"
        "require x.test/two/v2 v2.0.0 // indirect\nexclude x.test/three v1.0.0\n"
        "retract [v1.0.0, v1.1.0]\n"
    )
    assert found.files["go.sum"] == sums
    assert found.unknown == (
        "what `replace x.test/one => ../one` in go.mod says",
        "what `replace x.test/two/v2 => x.test/evil v1.0.0` in go.mod says",
        'what `require "x.test/quoted" v1.0.0` in go.mod says',
        "what go.work changes",
    )
    assert not has_members("go", "module x.test/app\n")


def test_what_an_environment_holds_is_known_by_folded_names() -> None:
    found = held(["Name: A_b.c\nVersion: 1\n\nName: d\nVersion: 2\n", None])
    assert ("a-b-c", "1") in found
    assert "d" not in {name for name, _ in found}
