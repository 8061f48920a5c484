"""What the repository holds: no registry's name, no address, what is promised at its top, and
every package that is used and no other."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.source_reader import ROOT, imported, run_as_root, sources


def tracked_files() -> list[Path]:
    """What belongs to the repository: what git has, and what it would take; symlinks and removed
    files left out."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


# Put together here, so that this file holds none of them either.
REGISTRY_HOSTS = [
    ".".join(labels)
    for labels in [
        ("pypi", "org"), ("pythonhosted", "org"), ("pypi", "python", "org"), ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"), ("crates", "io"), ("rubygems", "org"), ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("deb", "debian", "org"), ("security", "debian", "org"), ("archive", "ubuntu", "com"),
        ("docker", "io"), ("ghcr", "io"),
        ("repo", "maven", "apache", "org"), ("packagist", "org"), ("nuget", "org"), ("hackage",
         "haskell", "org"),
    ]
]  # fmt: skip


def test_no_package_registry_is_named_anywhere() -> None:
    """Where packages come from is the machine's configuration; a name in here would go around a
    mirror."""
    # A label before the host is a host too; a longer word that ends in it is another name.
    pattern = re.compile(
        rb"(?<![a-z0-9-])("
        + b"|".join(re.escape(host).encode() for host in REGISTRY_HOSTS)
        + rb")(?![a-z0-9-])"
    )
    naming = {
        f"{path.relative_to(ROOT)}: {found.group().decode()}"
        for path in tracked_files()
        if (found := pattern.search(path.read_bytes().lower()))
    }
    assert not naming, "use packages.example.org in examples"


def test_the_lock_files_name_no_address() -> None:
    for lock in sorted(ROOT.glob("requirements*.lock")):
        assert "://" not in lock.read_text(encoding="utf-8"), lock.name
        options = {
            line.split()[0].split("=")[0]
            for line in lock.read_text(encoding="utf-8").splitlines()
            if line.lstrip().startswith("-")
        }
        assert options <= {"--hash"}, lock.name


@pytest.mark.xdist_group("kept")
def test_tests_that_share_something_share_a_worker(request: pytest.FixtureRequest) -> None:
    """What two versions of others' work once undid in silence: each worker started a browser,
    and a supervisor under load, of its own."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@kept")


PROMISED = """
    pyproject.toml requirements.lock Makefile README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md
    LICENSE
    .ci/run scripts/setup supervisor/core supervisor/gate/gate.py
    supervisor/records/approval_queue.py supervisor/records/audit.py
    supervisor/records/policy_files.py supervisor/sessions/session_manager.py
    supervisor/records/kill_switch.py supervisor/store
    supervisor/sandbox/base.py supervisor/sandbox/bubblewrap.py supervisor/egress
    supervisor/channels/exec.py
    supervisor/workspace supervisor/server supervisor/settings.py supervisor/base/clock.py
    supervisor/base/process.py
    supervisor/errors.py supervisor/app/app.py supervisor/cli/cli.py agent_image/reviewer
    policy/default.yaml policy/examples
    policy/README.md web/templates web/static data/README.md tests/fakes tests/golden
    tests/scenarios tests/escape tests/doors
    tests/browser bench
""".split()  # noqa: SIM905  (a list of names, to be read)


def test_the_layout_is_a_promise() -> None:
    def is_kept(target: Path) -> bool:
        return target.is_file() or (target.is_dir() and any(target.iterdir()))

    assert [path for path in PROMISED if not is_kept(ROOT / path)] == [], "missing or empty"


def test_nothing_unexpected_lies_at_the_top_level() -> None:
    """The top level is what a newcomer reads first; a new name there is a decision, made here."""
    promised = {path.split("/")[0] for path in PROMISED} | {
        ".gitignore", ".dockerignore", "requirements-dev.lock",
        "requirements-sdk.lock", "requirements-uv.lock",
        "scripts", "tests", "docs", "compose.yaml", "Dockerfile", "action.yml",
    }  # fmt: skip
    assert {path.relative_to(ROOT).parts[0] for path in tracked_files()} <= promised


def test_what_only_root_can_do_is_run_as_root_too() -> None:
    """`make test` runs everything without root's rights: elsewhere such a test would be skipped
    for good."""
    share = run_as_root("ROOT_SHARE")
    needs = re.compile(r"geteuid\(\) == 0|geteuid\(\) != 0, reason|only root|folding_files")
    names = (
        str(path.relative_to(ROOT)) for path in tracked_files() if path.match("tests/**/test_*.py")
    )
    only_root = {
        name
        for name in names
        if name != "tests/test_repository.py" and needs.search((ROOT / name).read_text("utf-8"))
    }
    assert only_root
    assert {name for name in only_root if not name.startswith(share)} == set()


def test_what_a_person_does_is_tried_as_root_too() -> None:
    too = run_as_root("ROOT_TOO")
    assert "tests/doors" in too


def test_web_holds_no_python() -> None:
    assert not list((ROOT / "web").rglob("*.py"))


# Packages whose import has another name, and packages that are used without an import of ours.
INSTALLS = {
    "pyyaml": "yaml",
    "dnspython": "dns",
    "markdown-it-py": "markdown_it",
    "pyopenssl": "OpenSSL",
    "pyjwt": "jwt",
}
NOT_IMPORTED = {"flit-core": "builds the project"}
# uvicorn takes its loop and its WebSockets by name, Litestar its template engine.
NAMED = {
    "uvloop": r"[\"']uvloop",
    "websockets": r"uvicorn\.protocols\.websockets",
    "jinja2": r"litestar\.(contrib|plugins)\.jinja",
}


def declared_dependencies() -> dict[str, str]:
    """Package -> the name it is imported by."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["sdk"]]
    names = (re.split(r"[<>=!~\[; ]", line)[0] for line in lines)
    return {name: INSTALLS.get(name, name.replace("-", "_")) for name in names}


def test_every_dependency_is_used() -> None:
    """A package that nothing uses is only risk."""
    tops = {name.split(".")[0] for module in sources() for name in imported(module)}
    text = "\n".join(module.path.read_text(encoding="utf-8") for module in sources())
    named = {package for package, pattern in NAMED.items() if re.search(pattern, text)}
    unused = {
        p
        for p, top in declared_dependencies().items()
        if top not in tops and p not in {*named, *NOT_IMPORTED}
    }
    assert unused == set()


def test_every_package_that_is_imported_is_declared() -> None:
    """What is only there because another package needs it may go when that one changes."""
    known = {
        *sys.stdlib_module_names,
        *declared_dependencies().values(),
        "supervisor",
        "agent_image",
    }
    tops = {(name.split(".")[0], module.name) for module in sources() for name in imported(module)}
    assert {(top, module) for top, module in tops if top not in known} == set()
