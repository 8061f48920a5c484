"""The installation's certificate authority, and a sandbox's CA bundle.

Egress signs certificates with it so that HTTPS can be judged by its content. The supervisor makes
it, so that only egress needs mitmproxy. The key stays in `ca/` (0600, folder 0700) and never enters
a sandbox. A sandbox gets the bundle, which holds public certificates only, and the same as a trust
store for Java, which reads no PEM. File names and format are those that mitmproxy reads.
"""

import contextlib
import datetime
import functools
import re
import secrets
import ssl
import warnings
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from supervisor.base import plain_files
from supervisor.base.clock import Clock
from supervisor.errors import UserError

KEY_AND_CERTIFICATE = "mitmproxy-ca.pem"
CERTIFICATE = "mitmproxy-ca-cert.pem"
VALID_DAYS = 3650
# Clocks differ, and a certificate from the future is refused.
BACKDATED_DAYS = 2
EXPIRES_SOON_DAYS = 30
_CERTIFICATE_BLOCK = re.compile(
    r"^-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+\n-----END CERTIFICATE-----$", re.MULTILINE
)
# Debian and Ubuntu; Fedora and RHEL; openSUSE; Alpine.
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def ensure_ca(directory: Path, clock: Clock) -> Path:
    """Return the path of the public certificate; make the authority if there is none. Raise
    `UserError` where the folder holds a broken or expired authority, or one that others can read.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    key_file = directory / KEY_AND_CERTIFICATE
    if not key_file.exists():
        # Linked into place: if two start at once, one wins, and both continue with the same
        # authority.
        with contextlib.suppress(FileExistsError):
            _write_new(key_file, _create(clock.now()))
    problem = check_ca(directory, clock)
    if problem is not None:
        raise UserError(*problem)
    certificate = directory / CERTIFICATE
    _replace(certificate, _certificate(key_file).public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate


def check_ca(directory: Path, clock: Clock) -> tuple[str, str] | None:
    """Return the authority's fault and the remedy, or None where it can be used. `doctor` uses
    this, too."""
    key_file = directory / KEY_AND_CERTIFICATE
    remedy = f"move `{directory}` away; a new authority is made at the next start"
    try:
        if key_file.stat().st_mode & 0o077:
            return f"`{key_file}` can be read by others", f"chmod 600 `{key_file}`, or {remedy}"
        key = serialization.load_pem_private_key(plain_files.read_bytes(key_file), None)
        certificate = _certificate(key_file)
    except (OSError, ValueError, TypeError) as error:
        return f"`{key_file}` can't be used: {type(error).__name__}", remedy
    if key.public_key() != certificate.public_key():
        return f"key and certificate in `{key_file}` don't belong together", remedy
    left_s = certificate.not_valid_after_utc.timestamp() - clock.now()
    if left_s < EXPIRES_SOON_DAYS * 86400:
        return f"the authority in `{directory}` expires within {EXPIRES_SOON_DAYS} days", remedy
    return None


def system_bundle() -> Path:
    """Return the file of this system's authorities. Raise `UserError` where there is none."""
    candidates = [ssl.get_default_verify_paths().cafile, *SYSTEM_BUNDLES]
    for candidate in candidates:
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    raise UserError(
        "no bundle of certificate authorities was found", "install the package `ca-certificates`"
    )


def write_bundle(target: Path, *sources: Path) -> Path:
    """Write the certificates of all `sources` into one PEM file, for a sandbox or for egress
    itself.

    INVARIANT: only certificates are copied, so that no key gets in, whatever the files hold.
    """
    parts = []
    for source in sources:
        try:
            parts.append(_certificates(plain_files.read_text(source, "latin-1")))
        except (OSError, ValueError) as error:
            raise UserError(
                f"`{source}` is not a PEM file of certificates: {
                    getattr(error, 'strerror', None) or type(error).__name__
                }",
                "check the path",
            ) from error
    _replace(target, "".join(parts).encode("ascii"), 0o644)
    return target


# The system's go into two bundles.
@functools.lru_cache(maxsize=4)
def _certificates(text: str) -> str:
    """Return the certificates of a PEM file. Raise `ValueError` or `OSError` where OpenSSL, which
    will read the bundle, refuses one. Stricter readers refuse authorities that systems still
    carry."""
    found = _CERTIFICATE_BLOCK.findall(text.replace("\r\n", "\n"))
    blocks = "".join(f"{block}\n" for block in found)
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=blocks)
    return blocks


def write_java_store(target: Path, bundle: Path) -> Path:
    """Write the certificates of a bundle as a PKCS12 trust store for Java, without a password,
    since it holds nothing secret.

    A certificate that this reader refuses is left out: Java then doesn't trust that authority.
    """
    found = []
    with warnings.catch_warnings():
        # Systems still carry authorities whose serial number isn't positive.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        for number, block in enumerate(_CERTIFICATE_BLOCK.findall(bundle.read_text("ascii"))):
            with contextlib.suppress(ValueError):
                certificate = x509.load_pem_x509_certificate(block.encode())
                found.append(pkcs12.PKCS12Certificate(certificate, f"authority-{number}".encode()))
    _replace(target, pkcs12.serialize_java_truststore(found, serialization.NoEncryption()), 0o644)
    return target


def _create(now: float) -> bytes:
    """Return a new authority as PEM, key first. With P-256, signing for a new host is ten times as
    fast as with RSA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, f"Gatehouse {secrets.token_hex(4)}"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Gatehouse"),
        ]
    )
    start = datetime.datetime.fromtimestamp(now, datetime.UTC) - datetime.timedelta(
        days=BACKDATED_DAYS
    )
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(plain_files.read_bytes(path))[0]


def _write_new(path: Path, data: bytes) -> None:
    temporary = plain_files.write_temporary(path, data)
    try:
        path.hardlink_to(temporary)
    finally:
        temporary.unlink()


def _replace(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain_files.replace(path, data, mode)
