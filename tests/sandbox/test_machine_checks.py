"""doctor's checks, each shown a machine that lacks what it looks for."""

import os
from pathlib import Path

import pytest

from supervisor.cli.doctor import interpreter
from supervisor.sandbox import kernel, machine_checks
from supervisor.sandbox.bubblewrap import Bubblewrap


async def test_this_machine_passes_what_is_needed() -> None:
    backend = Bubblewrap()
    findings = [*kernel.findings(), *await backend.check()]
    await backend.close()
    assert [finding for finding in findings if finding.needed and not finding.ok] == []
    assert [finding.name for finding in findings] == [
        "kernel", "user namespaces", "AppArmor", "Landlock", "bubblewrap", "git", "seccomp",
        "control groups", "trial sandbox", "contained commands",
        "transparent network",
    ]  # fmt: skip
    assert findings[-2].ok, findings[-2].detail


@pytest.mark.parametrize(
    ("release", "ok"), [("6.1.0-13-amd64", True), ("5.14.0", True), ("5.10.0", False), ("?", False)]
)
def test_kernel(release: str, ok: bool) -> None:
    assert kernel.kernel(release).ok is ok


def test_user_namespaces_and_apparmor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name in ("user", "kernel"):
        (tmp_path / name).mkdir()
    assert kernel.apparmor(tmp_path).ok
    (tmp_path / "user/max_user_namespaces").write_text("0\n")
    assert "sysctl" in kernel.user_namespaces(tmp_path).remedy
    (tmp_path / "user/max_user_namespaces").write_text("9\n")
    (tmp_path / "kernel/unprivileged_userns_clone").write_text("0\n")
    assert "unprivileged_userns_clone=1" in kernel.user_namespaces(tmp_path).remedy
    (tmp_path / "kernel/unprivileged_userns_clone").write_text("1\n")
    assert kernel.user_namespaces(tmp_path).ok
    (tmp_path / "kernel/apparmor_restrict_unprivileged_userns").write_text("1\n")
    found = kernel.apparmor(tmp_path)
    assert found.ok or "bwrap-userns-restrict" in found.remedy


@pytest.mark.parametrize(
    ("says", "ok"),
    [
        ("bubblewrap 0.8.0", True),
        ("bubblewrap 0.12.1", True),
        ("bubblewrap 0.4.1", False),
        ("", False),
    ],
)
async def test_bubblewrap_version(tmp_path: Path, says: str, ok: bool) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\necho {says}\n")
    fake.chmod(0o755)
    assert (await machine_checks.bubblewrap(str(fake))).ok is ok
    fake.chmod(0o4755)
    assert not (await machine_checks.bubblewrap(str(fake))).ok


@pytest.mark.parametrize(
    ("prefix", "configured", "ok"),
    [
        (
            "/root/.pyenv/versions/3.13.0",
            "'--prefix=/root/.pyenv/versions/3.13.0' '--enable-shared'",
            False,
        ),
        ("/root/.pyenv/versions/3.13.0", "'--enable-optimizations' '--with-lto'", True),
        ("/usr", "'--enable-shared' '--prefix=/usr'", True),
        ("/usr/local", "", False),
    ],
)
def test_a_slow_python_is_told_and_is_no_hindrance(prefix: str, configured: str, ok: bool) -> None:
    found = interpreter("3.13.0", prefix, configured)
    assert (found.ok, bool(found.remedy), found.needed) == (ok, not ok, ok)


async def test_without_bubblewrap_the_trial_says_so() -> None:
    backend = Bubblewrap()
    backend.program = None
    findings = {finding.name: finding for finding in await backend.check()}
    await backend.close()
    assert not findings["bubblewrap"].ok
    assert "apt install bubblewrap" in findings["bubblewrap"].remedy
    assert "isn't installed" in findings["trial sandbox"].detail
    assert all(finding.ok or finding.remedy for finding in findings.values())
