"""The small /etc of a sandbox: what programs need is there, what only some on this machine may
read isn't, nor what they are told passwords in."""

from pathlib import Path

import pytest

from supervisor.sandbox.host import read_host

SECRET = "hunter2-0123456789"
SHOWN = (
    "alternatives/java", "java-17-openjdk/management/management.properties", "maven/m2.conf",
    "maven/logging/simplelogger.properties",
    "R/Renviron", "dotnet/install_location", "groff/man.local", "locale.alias", "xml/catalog",
    "ssl/openssl.cnf",
)  # fmt: skip
HIDDEN = (
    "maven/settings.xml", "npmrc", "pip.conf", "gitconfig", "R/Renviron.site", "R/Rprofile.site",
    "ssl/private/key.pem", "shadow", "machine-id",
    "hostname", "ssh/ssh_config", "environment", "profile",
)  # fmt: skip


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


@pytest.fixture
def of(tmp_path: Path) -> Path:
    made = tmp_path / "etc"
    for name in SHOWN:
        write(made / name, "as it is")
    for name in HIDDEN:
        write(made / name, SECRET)
    return made


def test_programs_find_what_they_need_and_nobody_a_password(of: Path, tmp_path: Path) -> None:
    etc = read_host(tmp_path / "small", of).etc
    for name in SHOWN:
        assert (etc / name).read_text() == "as it is"
    assert not [path for path in etc.rglob("*") if path.is_file() and SECRET in path.read_text()]


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_what_others_cannot_read_is_not_shown(of: Path, tmp_path: Path, mode: int) -> None:
    """Whoever Gatehouse runs as."""
    write(of / "java-17-openjdk/management/jmxremote.password", SECRET, mode)
    write(of / "maven/m2.conf", SECRET, mode)
    write(of / "xml/mine/catalog", SECRET)
    (of / "xml/mine").chmod(mode | 0o100)
    etc = read_host(tmp_path / "small", of).etc
    assert not [path for path in etc.rglob("*") if path.is_file() and SECRET in path.read_text()]
    assert (etc / "java-17-openjdk/management/management.properties").is_file()
    assert (etc / "xml/catalog").is_file()


def test_links_stay_links_also_where_they_lead_nowhere(of: Path, tmp_path: Path) -> None:
    (of / "alternatives/awk").symlink_to("/usr/bin/mawk")
    (of / "alternatives/gone").symlink_to("/usr/bin/no-such-program")
    (of / "xml/linked").symlink_to(of / "shadow")
    etc = read_host(tmp_path / "small", of).etc
    assert (etc / "alternatives/awk").readlink() == Path("/usr/bin/mawk")
    assert (etc / "alternatives/gone").is_symlink()
    assert (etc / "xml/linked").readlink() == of / "shadow"
    # Made anew over an earlier one.
    (of / "alternatives/awk").unlink()
    assert not (read_host(tmp_path / "small", of).etc / "alternatives/awk").is_symlink()
