"""Which Python and uv the set-up takes, and what it says without them."""

from pathlib import Path

import pytest

from tests.test_setup import BASE_PYTHON, Machine, machine

__all__ = ["machine"]


def test_shims_and_other_versions_are_passed_over(machine: Machine) -> None:
    """The first python3.13 on PATH may be a shim that fails, and the one that works may be
    called python."""
    machine.stand_in("python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    machine.stand_in("python3", "exit 1")
    machine.stand_in("python", f'exec "{BASE_PYTHON}" "$@"')
    machine.stand_in("uv", 'case "$1" in --version) echo "uv 0.9.1" ;; esac; exit 0')
    machine.set_up("run")
    venv = next(call for call in machine.calls("uv") if call.startswith("uv venv"))
    assert f"--python {BASE_PYTHON} " in venv, (
        "the interpreter itself, not the name it was found under"
    )


def test_an_interpreter_in_pyenvs_folders_is_found(machine: Machine, tmp_path: Path) -> None:
    pyenv = tmp_path / "pyenv"
    for version in ["3.13.2", "3.13.10"]:
        (pyenv / "versions" / version / "bin").mkdir(parents=True)
    shim = f'#!/bin/sh\necho newest >>"{machine.log}"\nexec "{BASE_PYTHON}" "$@"\n'
    newest = pyenv / "versions" / "3.13.10" / "bin" / "python3.13"
    newest.write_text(shim)
    newest.chmod(0o755)
    machine.stand_in("uv", 'case "$1" in --version) echo "uv 0.9.1" ;; esac; exit 0')
    machine.set_up("run", PYENV_ROOT=str(pyenv))
    assert machine.calls("newest"), "3.13.10 comes after 3.13.2"


@pytest.mark.parametrize("others", [{}, {"python": "--enable-optimizations"}])
def test_a_python_without_optimisation_is_taken_where_there_is_no_other(
    machine: Machine, others: dict[str, str]
) -> None:
    for name, configured in {"python3.13": "--with-lto", "python3": "", **others}.items():
        machine.stand_in(
            name,
            f'''exec "{BASE_PYTHON}" -I -c "
import sys, sysconfig
real = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: '{configured}' if name == 'CONFIG_ARGS' else real(name)
sys.base_prefix, sys._base_executable = '/opt/built', '/opt/built/{name}'
$3"''',
        )
    machine.stand_in("uv", 'case "$1" in --version) echo "uv 0.9.1" ;; esac; exit 0')
    machine.set_up("run")
    venv = next(call for call in machine.calls("uv") if call.startswith("uv venv"))
    assert f"--python /opt/built/{'python' if others else 'python3.13'} " in venv


def test_the_distributions_python_is_installed_where_it_has_one(machine: Machine) -> None:
    machine.as_root()
    machine.stand_in("apt-cache", 'echo "  Candidate: 3.13.5-2"')
    machine.stand_in(
        "apt-get",
        f'case "$*" in *install*) ln -s "{BASE_PYTHON}" "{machine.bin}/python3.13" ;; esac',
    )
    machine.stand_in("uv", 'case "$1" in --version) echo "uv 0.9.1" ;; esac; exit 0')
    machine.set_up("run")
    assert machine.calls("apt-get")[-1].endswith("install -y --no-install-recommends python3.13")
    assert any(call.startswith("uv venv") for call in machine.calls("uv"))
    assert not any(call.startswith("uv python") for call in machine.calls("uv"))


def test_a_python_that_is_named_must_do(machine: Machine) -> None:
    done = machine.set_up("run", PYTHON="/bin/false")
    assert done.returncode == 1
    assert (
        done.stderr
        == "setup: PYTHON=`/bin/false` is no CPython 3.13 with ssl, sqlite3 and ctypes; name"
        " another, or leave PYTHON out\n"
    )


def test_without_any_python_313_the_last_line_says_what_to_do(machine: Machine) -> None:
    machine.stand_in(
        "uv",
        'case "$1 $2" in --version*) echo "uv 0.9.1" ;; *) echo "error: request failed" >&2; exit 2'
        " ;; esac",
    )
    done = machine.set_up("run")
    assert done.returncode == 1
    *_, why, last = done.stderr.splitlines()
    assert why == "setup: uv said: error: request failed"
    assert last.startswith(
        "setup: no Python 3.13 found, and uv could not download one; install it "
    )
    assert last.endswith("make setup PYTHON=/path/to/python3.13")


@pytest.mark.parametrize("version", ["uv 0.4.30", "pyenv: uv: command not found", ""])
def test_a_uv_that_is_too_old_or_no_uv_is_replaced_by_the_locked_one(
    machine: Machine, version: str
) -> None:
    machine.stand_in("uv", f'[ -n "{version}" ] && echo "{version}" || exit 127')
    # A python3 with pip, which puts uv where it is told to.
    machine.stand_in(
        "python3",
        'case "$*" in *--target*) mkdir -p .tools/uv.new/bin; printf "#!/bin/sh\\necho uv'
        ' 0.13.9\\n" >.tools/uv.new/bin/uv; /bin/chmod +x .tools/uv.new/bin/uv ;; *"pip'
        ' --version"*) ;; *) exit 1 ;; esac',
    )
    done = machine.set_up("uv")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{machine.checkout}/.tools/uv\n"
    (install,) = [call for call in machine.calls("python3") if "--target" in call]
    assert {"--require-hashes", "--only-binary", "requirements-uv.lock"} <= set(install.split())


def test_without_uv_and_any_way_to_get_it_the_remedy_is_named(machine: Machine) -> None:
    machine.stand_in("python3", "exit 1")
    machine.as_user()
    done = machine.set_up("uv")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(
        "setup: no usable uv, and it could not be installed; install uv 0.7 or newer"
    )
