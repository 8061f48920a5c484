"""The authority: made once, private, refused when it is broken; bundles hold certificates and
nothing else."""

import asyncio
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from supervisor.base.clock import RealClock
from supervisor.errors import UserError
from supervisor.network import ca
from tests.fakes.clock import FakeClock


def test_it_is_made_once_and_only_the_owner_reads_the_key(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        certificate = ca.ensure_ca(tmp_path / "ca", RealClock())
    finally:
        os.umask(old)
    key = (tmp_path / "ca" / ca.KEY_AND_CERTIFICATE).read_bytes()
    assert stat.S_IMODE((tmp_path / "ca").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "ca" / ca.KEY_AND_CERTIFICATE).stat().st_mode) == 0o600
    assert b"PRIVATE KEY" in key
    assert b"PRIVATE KEY" not in certificate.read_bytes()
    ca.ensure_ca(tmp_path / "ca", RealClock())
    assert (tmp_path / "ca" / ca.KEY_AND_CERTIFICATE).read_bytes() == key


def test_two_starts_at_once_agree(tmp_path: Path) -> None:
    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(asyncio.to_thread(ca.ensure_ca, tmp_path / "ca", RealClock()))

    asyncio.run(both())
    assert ca.check_ca(tmp_path / "ca", RealClock()) is None
    assert sorted(path.name for path in (tmp_path / "ca").iterdir()) == [
        ca.CERTIFICATE,
        ca.KEY_AND_CERTIFICATE,
    ]


def test_it_can_sign_servers_and_nothing_else(tmp_path: Path) -> None:
    certificate = x509.load_pem_x509_certificate(ca.ensure_ca(tmp_path, RealClock()).read_bytes())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [use.dotted_string for use in usage] == ["1.3.6.1.5.5.7.3.1"]


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"]
)
def test_a_broken_one_is_refused_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    ca.ensure_ca(tmp_path, RealClock())
    (tmp_path / ca.KEY_AND_CERTIFICATE).write_bytes(content)
    with pytest.raises(UserError, match="move"):
        ca.ensure_ca(tmp_path, RealClock())


def test_one_that_others_can_read_is_refused(tmp_path: Path) -> None:
    ca.ensure_ca(tmp_path, RealClock())
    (tmp_path / ca.KEY_AND_CERTIFICATE).chmod(0o644)
    with pytest.raises(UserError, match="read by others"):
        ca.ensure_ca(tmp_path, RealClock())


def test_one_that_expires_soon_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    ca.ensure_ca(tmp_path, clock)
    clock.advance((ca.VALID_DAYS - 10) * 86400)
    with pytest.raises(UserError, match="expires"):
        ca.ensure_ca(tmp_path, clock)


def test_key_and_certificate_must_belong_together(tmp_path: Path) -> None:
    ca.ensure_ca(tmp_path / "a", RealClock())
    ca.ensure_ca(tmp_path / "b", RealClock())
    one, other = ((tmp_path / name / ca.KEY_AND_CERTIFICATE).read_bytes() for name in "ab")
    mark = b"-----BEGIN CERTIFICATE-----"
    (tmp_path / "a" / ca.KEY_AND_CERTIFICATE).write_bytes(
        one.split(mark)[0] + mark + other.split(mark)[1]
    )
    assert ca.check_ca(tmp_path / "a", RealClock()) is not None


def test_a_bundle_holds_certificates_only(tmp_path: Path) -> None:
    ca.ensure_ca(tmp_path / "ca", RealClock())
    bundle = ca.write_bundle(
        tmp_path / "bundle.pem", ca.system_bundle(), tmp_path / "ca" / ca.KEY_AND_CERTIFICATE
    )
    text = bundle.read_bytes()
    assert b"PRIVATE KEY" not in text
    assert text.count(b"BEGIN CERTIFICATE") > 10
    assert (tmp_path / "ca" / ca.CERTIFICATE).read_bytes().strip() in text
    assert ssl.create_default_context(cafile=str(bundle)).cert_store_stats()["x509_ca"] > 10


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(UserError, match="not a PEM file"):
        ca.write_bundle(tmp_path / "bundle.pem", tmp_path / "no.pem")


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # systems still carry such authorities
def test_javas_store_has_every_authority_of_the_bundle_and_no_key(tmp_path: Path) -> None:
    own = ca.ensure_ca(tmp_path / "ca", RealClock())
    bundle = ca.write_bundle(
        tmp_path / "bundle.pem", ca.system_bundle(), own, tmp_path / "ca" / ca.KEY_AND_CERTIFICATE
    )
    store = ca.write_java_store(tmp_path / "bundle.p12", bundle)
    found = pkcs12.load_pkcs12(store.read_bytes(), None)
    assert found.key is None
    assert found.cert is None
    assert len(found.additional_certs) == bundle.read_text().count("BEGIN CERTIFICATE")
    names = [one.friendly_name for one in found.additional_certs]
    assert len(set(names)) == len(names), "Java keeps one of a name"
    (mine,) = x509.load_pem_x509_certificates(own.read_bytes())
    assert mine in [one.certificate for one in found.additional_certs]


def test_what_cannot_be_read_is_left_out_of_javas_store(tmp_path: Path) -> None:
    own = ca.ensure_ca(tmp_path / "ca", RealClock())
    (tmp_path / "bundle.pem").write_text(
        f"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{own.read_text()}"
    )
    store = ca.write_java_store(tmp_path / "bundle.p12", tmp_path / "bundle.pem")
    assert len(pkcs12.load_pkcs12(store.read_bytes(), None).additional_certs) == 1
