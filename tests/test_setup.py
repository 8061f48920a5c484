"""Tries the set-up: what it installs from where, what it says when it can't, and that it gets out
of the way.

The real script runs in a copy of what it reads. Where a machine without this or that is needed,
PATH holds only the plain tools and stand-ins that write down how they were called: apt and sudo
can't be had for real.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = [
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-sdk.lock",
    "requirements-uv.lock",
]
PLAIN_TOOLS = [
    "cat",
    "chmod",
    "cut",
    "dirname",
    "env",
    "find",
    "flock",
    "grep",
    "head",
    "id",
    "ln",
    "mkdir",
    "mktemp",
    "mv",
    "rm",
    "sed",
    "sh",
    "sha256sum",
    "sort",
    "tail",
    "touch",
    "tr",
    "true",
    "uname",
]
SYSTEM_TOOLS = "bwrap git rg curl chromium-headless-shell".split()  # noqa: SIM905
WORKING_UV = (
    'case "$1" in --version) echo "uv 0.7.0" ;; venv) mkdir -p .venv/bin; ln -s "$4"'
    " .venv/bin/python; : >.venv/bin/gatehouse; chmod +x .venv/bin/gatehouse ;; esac"
)

# The interpreter behind this environment.
BASE_PYTHON = Path(sys.base_prefix) / "bin" / "python3.13"


def pins(lock: str) -> dict[str, str]:
    """Package -> version with its marker, as a lock file says."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==(.+?) \\$", text, re.MULTILINE))


class Machine:
    """A checkout's set-up on a machine of its own making: its PATH, and a log of how its
    stand-ins were called."""

    def __init__(self, place: Path) -> None:
        self.checkout = place / "checkout with spaces"
        self.bin = place / "bin"
        self.log = place / "calls.log"
        self.bin.mkdir(parents=True)
        self.log.touch()
        shutil.copytree(ROOT / "scripts", self.checkout / "scripts")
        for name in ["pyproject.toml", "README.md", "LICENSE", *LOCKS]:
            shutil.copy(ROOT / name, self.checkout)
        for name in ["supervisor", "agent_image"]:
            (self.checkout / name).mkdir()
            (self.checkout / name / "__init__.py").write_text(
                '"""A part."""\n\n__version__ = "0"\n'
            )
        for tool in PLAIN_TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        # The machine that the tests run on may have Pythons where every machine is looked at.
        self.stand_in(
            "ls",
            f'case "$*" in */root/.pyenv*|*/opt/pyenv*) exit 2 ;; esac; exec {shutil.which("ls")}'
            ' "$@"',
        )
        for tool in SYSTEM_TOOLS:
            self.stand_in(tool)

    def stand_in(self, name: str, body: str = "") -> Path:
        """A command that notes its arguments and then does `body`."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.log}"\n{body}\n')
        path.chmod(0o755)
        return path

    def link(self, name: str, target: str | Path) -> None:
        """The real command, under this name."""
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).symlink_to(target)

    def lack(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def as_user(self) -> None:
        self.stand_in("id", "echo 1000")

    def as_root(self) -> None:
        self.stand_in("id", "echo 0")

    def set_up(
        self, *arguments: str, shell: str = "sh", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run it without a terminal. Only what is given is in the environment."""
        # No test fetches anything: what would is answered by the stand-ins, or fails at once.
        given = {
            "PATH": str(self.bin),
            "HOME": str(self.bin.parent / "home"),
            "PIP_NO_INDEX": "1",
            **environment,
        }
        return subprocess.run(
            [str(shutil.which(shell)), "scripts/setup", *arguments],
            cwd=self.checkout,
            env=given,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    def calls(self, name: str) -> list[str]:
        return [
            line
            for line in self.log.read_text().splitlines()
            if line.split()[0] == name and "--version" not in line
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- lock files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_locked_has_a_version_and_a_hash(lock: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / lock).read_text(encoding="utf-8"))
    for entry in entries:
        if not entry.startswith("#"):
            assert re.match(r"[a-z0-9._-]+==\S+", entry), entry
            assert "--hash=sha256:" in entry, entry


def test_the_tests_run_on_the_versions_that_users_get() -> None:
    assert pins("requirements.lock").items() <= pins("requirements-dev.lock").items()


def test_every_dependency_is_locked() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r'^  "([a-z0-9-]+)', text.split("[project.scripts]")[0], re.MULTILINE)
    assert declared
    assert set(declared) <= pins("requirements-dev.lock").keys()


# --- the script ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_it_is_a_script_for_any_shell(shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    for script in ["setup", "lock", "fresh-clone-check", "without-root"]:
        subprocess.run([shell, "-n", str(ROOT / "scripts" / script)], check=True)


def test_an_unknown_argument_is_one_clear_line(machine: Machine) -> None:
    done = machine.set_up("everything")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "setup: unknown argument `everything`; say run, dev, sdk or uv\n"


# --- without root's rights -----------------------------------------------------------------------


def without_root(*command: str, path: str = "") -> subprocess.CompletedProcess[str]:
    argv = [str(ROOT / "scripts/without-root"), *command]
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_without_root_nobody_is_root_and_roots_files_are_readable() -> None:
    done = without_root(
        "sh",
        "-c",
        'id -u; grep CapEff /proc/self/status; cat "$0" >/dev/null',
        str(ROOT / "Makefile"),
    )
    assert done.returncode == 0, done.stderr
    uid, capabilities = done.stdout.splitlines()
    assert uid == str(os.getuid() or 1000)
    assert int(capabilities.split()[1], 16) == 0
    assert without_root("sh", "-c", "exit 7").returncode == 7


def test_where_no_user_namespace_can_be_made_nothing_is_run_and_one_line_says_why(
    machine: Machine,
) -> None:
    """Never silently as root: what was to be tried would not have been."""
    machine.stand_in("id", "echo 0")
    machine.stand_in(
        "unshare", 'echo "unshare: unshare failed: Operation not permitted" >&2; exit 1'
    )
    done = without_root("echo", "ran", path=str(machine.bin))
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "without-root: unshare: unshare failed: Operation not permitted: no user namespace"
        " here; "
        "allow them, or do this as an ordinary user\n"
    )


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_it_installs_and_then_has_nothing_to_do(machine: Machine, shell: str) -> None:
    uv = machine.stand_in("uv", WORKING_UV)
    machine.link("python3.13", BASE_PYTHON)
    done = machine.set_up("run", shell=shell)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("setup: ready\n")
    assert [call.split()[1:3] for call in machine.calls("uv")] == [
        ["venv", "-q"],
        ["pip", "sync"],
        ["pip", "install"],
    ]
    sync, install = machine.calls("uv")[1:]
    assert {"--require-hashes", "--only-binary", "--compile-bytecode", "requirements.lock"} <= set(
        sync.split()
    )
    assert {"--no-deps", "--no-build-isolation", "--offline"} <= set(install.split())
    # Again: nothing is said, nothing is called, and neither uv nor Python is needed.
    uv.unlink()
    machine.log.write_text("")
    again = machine.set_up("run", shell=shell)
    assert (again.returncode, again.stdout, again.stderr, machine.log.read_text()) == (
        0,
        "",
        "",
        "",
    )


@pytest.mark.many
def test_a_changed_lock_file_and_a_moved_checkout_are_noticed(machine: Machine) -> None:
    machine.stand_in("uv", WORKING_UV)
    machine.link("python3.13", BASE_PYTHON)
    assert machine.set_up("dev").returncode == 0
    for change in ["lock", "place"]:
        machine.log.write_text("")
        if change == "lock":
            with (machine.checkout / "requirements-dev.lock").open("a") as lock:
                lock.write("# newer\n")
        else:
            machine.checkout = machine.checkout.rename(machine.checkout.with_name("moved"))
        # `run` after `dev` keeps what the tests need.
        assert machine.set_up("run").returncode == 0
        assert [call for call in machine.calls("uv") if "requirements-dev.lock" in call]


@pytest.mark.many
def test_a_failed_install_is_tried_again(machine: Machine) -> None:
    machine.stand_in(
        "uv",
        'case "$1 $2" in --version*) echo "uv 0.7.0" ;; venv*) mkdir -p .venv/bin; ln -s "$4"'
        ' .venv/bin/python ;; "pip sync") echo "no such host" >&2; exit 2 ;; esac',
    )
    machine.link("python3.13", BASE_PYTHON)
    for _ in range(2):
        done = machine.set_up("run")
        assert done.returncode == 1
        assert (
            "no such host\nsetup: the packages of requirements.lock could not be installed; "
            in done.stderr
        )
        assert len(done.stderr.splitlines()) <= 4
    assert len([call for call in machine.calls("uv") if call.startswith("uv pip sync")]) == 2


def test_pips_mirror_is_uvs_too(machine: Machine) -> None:
    machine.stand_in(
        "uv",
        'echo "$UV_DEFAULT_INDEX $SSL_CERT_FILE" >>index.log; case "$1" in --version) echo "uv'
        ' 0.7.0" ;; venv) mkdir -p .venv/bin; ln -s "$4" .venv/bin/python ;; esac',
    )
    machine.link("python3.13", BASE_PYTHON)
    address = "https://packages.example.org/simple"
    machine.set_up("run", PIP_INDEX_URL=address, PIP_CERT="/etc/mirror.pem")
    assert f"{address} /etc/mirror.pem\n" in (machine.checkout / "index.log").read_text()
    (machine.checkout / "index.log").unlink()
    machine.set_up("run", PIP_INDEX_URL=address, UV_DEFAULT_INDEX="https://other.example.org")
    assert address not in (machine.checkout / "index.log").read_text()


# --- system packages -----------------------------------------------------------------------------


def test_without_the_right_to_install_it_names_the_one_command(machine: Machine) -> None:
    machine.lack("bwrap", "rg")
    machine.stand_in("apt-get")
    machine.as_user()
    machine.stand_in("sudo", "exit 1")
    done = machine.set_up("run")
    assert done.returncode == 1
    assert (
        done.stderr
        == "setup: missing system packages, and no right to install them; run: sudo apt-get install"
        " -y bubblewrap ripgrep\n"
    )
    assert machine.calls("apt-get") == []


@pytest.mark.parametrize("who", ["root", "user with sudo"])
def test_where_it_may_it_installs_what_is_missing_and_no_more(machine: Machine, who: str) -> None:
    machine.lack("bwrap", "rg")
    machine.stand_in(
        "apt-get",
        f'case "$*" in *install*) for f in bwrap rg; do : >"{machine.bin}/$f"; chmod +x'
        f' "{machine.bin}/$f"; done; esac',
    )
    if who == "root":
        machine.as_root()
    else:
        machine.as_user()
        machine.stand_in("sudo", '[ "$1" = -n ] || exit 1; shift; exec "$@"')
    machine.stand_in("uv", "exit 1")
    machine.set_up("run")
    update, install = machine.calls("apt-get")
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends bubblewrap ripgrep")
    assert len([call for call in machine.calls("sudo") if "apt-get" in call]) == (
        0 if who == "root" else 2
    )


def test_with_nothing_missing_apt_is_left_alone(machine: Machine) -> None:
    machine.stand_in("apt-get")
    machine.as_root()
    machine.stand_in("uv", "exit 1")
    machine.set_up("dev")
    assert machine.calls("apt-get") == []


def test_when_apt_fails_its_words_and_the_command_are_shown(machine: Machine) -> None:
    machine.lack("git")
    machine.stand_in("apt-get", 'echo "E: Unable to locate package git"; exit 100')
    machine.as_root()
    done = machine.set_up("run")
    assert done.returncode == 1
    assert "E: Unable to locate package git\n" in done.stderr
    assert done.stderr.splitlines()[-1].endswith(
        "run: sudo apt-get update && sudo apt-get install git"
    )


@pytest.mark.parametrize("comes", [True, False])
def test_a_browser_without_a_window_is_wanted_beside_another_and_not_needed(
    machine: Machine, *, comes: bool
) -> None:
    browser = "chromium-headless-shell"
    machine.lack(browser)
    machine.stand_in("chromium")
    machine.as_root()
    machine.stand_in("apt-cache", "echo '  Candidate: 156'")
    machine.stand_in("apt-get", "echo no such host; exit 100" if not comes else "")
    machine.stand_in("uv", WORKING_UV)
    machine.link("python3.13", BASE_PYTHON)
    done = machine.set_up("dev")
    assert done.returncode == 0, done.stderr
    _update, install = machine.calls("apt-get")
    assert install.endswith(f"install -y --no-install-recommends {browser}")
    assert ("setup: the tests use the browser that is here\n" in done.stderr) != comes


def test_elsewhere_it_says_what_is_missing(machine: Machine) -> None:
    machine.lack("rg", "curl")
    done = machine.set_up("dev")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "setup: missing: ripgrep curl; install these with this system's package manager"
    )


def test_without_linux_it_says_so(machine: Machine) -> None:
    machine.stand_in("uname", "echo Darwin")
    done = machine.set_up("run")
    assert done.returncode == 1
    assert done.stderr.startswith("setup: the sandbox needs Linux, and this is Darwin; ")


# --- this environment ----------------------------------------------------------------------------


def test_this_environment_has_exactly_what_is_locked() -> None:
    """No package that no hash was checked for. Markers of other systems and versions are left
    out by their version."""
    locked = {re.sub(r"[-_.]+", "-", name) for name in pins("requirements-dev.lock")}
    installed = {
        re.sub(r"[-_.]+", "-", found.metadata["Name"].lower()) for found in distributions()
    }
    assert installed - locked <= {"gatehouse"}


def test_nothing_runs_at_every_start_of_python() -> None:
    """A `.pth` file may hold code; ours holds one path, and no dependency brings one."""
    for found in Path(sys.prefix).rglob("site-packages/*.pth"):
        assert found.read_text().strip() == str(ROOT), found.name


def test_make_test_is_what_ci_runs() -> None:
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    commands = [line for line in run.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[-1] == "exec make test"
    assert len(commands) == 3
