"""What stands in the place of a file that a person told us to read is refused at once, and what
it is is said."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.base import plain_files
from supervisor.core.actions import Network
from supervisor.core.policy.evaluate import evaluate
from supervisor.core.secrets.redact import Redactor
from supervisor.errors import PolicyError, UserError
from supervisor.ledger.spending import read_prices
from supervisor.network.ca import system_bundle, write_bundle
from supervisor.records.policy_files import PolicyFiles, check_policy
from supervisor.sessions.named_secrets import NamedSecrets
from supervisor.settings import from_environment
from tests.fakes.clock import FakeClock


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))  # the path of a socket is short


KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a socket": bound_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}


@pytest.fixture(params=KINDS)
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Something that is no file, and what it is."""
    path = tmp_path / "given.yaml"
    KINDS[request.param](path)
    return path, f"{path}: it is {request.param}, and only a file is read"


def test_a_policy(odd: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path, why = odd
    monkeypatch.setenv("GATEHOUSE_POLICY", str(path))
    with pytest.raises(PolicyError) as told:
        check_policy(from_environment().policy_file)
    assert "GATEHOUSE_POLICY" in told.value.remedy
    assert str(told.value).startswith(why)


def test_a_policy_while_it_is_in_force(odd: tuple[Path, str], tmp_path: Path) -> None:
    path, why = odd
    base = tmp_path / "base.yaml"
    base.write_text("version: 1\nallow: [network(a.example.org)]\n")
    files = PolicyFiles(base, tmp_path / "saved.yaml", FakeClock())
    base.unlink()
    path.rename(base)
    action = Network(operation="connect", host="a.example.org", port=443)
    assert evaluate(files.current(), action, now=0).decision == "allow"
    assert (
        files.banner == f"{why.replace(str(path), str(base))} (the last good policy stays in force)"
    )


def test_prices(odd: tuple[Path, str]) -> None:
    path, why = odd
    with pytest.raises(UserError) as told:
        read_prices(path)
    assert "GATEHOUSE_PRICES" in told.value.remedy
    assert str(told.value).startswith(why)


async def test_credentials(odd: tuple[Path, str], tmp_path: Path) -> None:
    path, why = odd
    with pytest.raises(UserError) as told:
        await NamedSecrets().load(path, tmp_path, Redactor())
    assert "GATEHOUSE_CREDENTIALS" in told.value.remedy
    assert str(told.value).startswith(why)


def test_authorities(odd: tuple[Path, str], tmp_path: Path) -> None:
    path, why = odd
    with pytest.raises(UserError, match=why.partition(": ")[2]):
        write_bundle(tmp_path / "bundle.pem", system_bundle(), path)


def test_a_link_to_a_file_is_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("ä\n", "utf-8")
    (tmp_path / "link").symlink_to("real")
    assert plain_files.read_text(tmp_path / "link") == "ä\n"
    assert plain_files.read_bytes(tmp_path / "link") == "ä\n".encode()
    with pytest.raises(OSError, match="symbolic"):
        plain_files.opened(tmp_path / "link", os.O_NOFOLLOW)
