"""Answers of package registries: what they say of one version.

Sources: npm's registry API (package metadata), the Simple repository API in JSON (PEP 691, PEP
700), cargo's sparse index and web API, Go's reference of modules (GOPROXY protocol). Pure. Facts
that an answer doesn't give stay None. Raise `ValueError` if it can't be read at all.
"""

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from supervisor.core.packages.package_commands import fold_name

MOST_HOSTS = 20
MOST_WARNING = 200
MOST_LICENCE = 200
MOST_LINK = 300
# Labels of a project's addresses (Core metadata specifications, "Well-known Project URLs").
_CHANGES = ("changelog", "changes", "releasenotes", "history", "whatsnew")
_PROJECT = ("repository", "source", "sourcecode", "github", "homepage")
MOST_ADDRESSES = 50
_PAGE = re.compile(r"(?:git\+)?(https://[A-Za-z0-9][A-Za-z0-9._~/-]*?)(?:\.git)?")


class RegistryFacts(NamedTuple):
    """A registry's facts about a version. `warning`: it was taken back, or is deprecated. `url`:
    the address of its file. `integrity`: the hashes of its files, separated by blanks. `link`: its
    repository's page."""

    published_at: float | None = None
    size: int | None = None
    licence: str | None = None
    has_scripts: bool | None = None
    warning: str = ""
    url: str = ""
    integrity: str = ""
    link: str = ""


def address(kind: str, index: str, name: str, version: str) -> str:
    """Return the URL that describes a package; empty if there is none for this index."""
    base = index.rstrip("/") + "/"
    match kind:
        case "npm":
            return urljoin(base, quote(name, safe="@"))
        case "pypi":
            return urljoin(base, f"{quote(fold_name(name))}/")
        case "crates":
            # `index` is the API from the index's `config.json`; without one, only the package's
            # existence is known.
            return urljoin(base, f"api/v1/crates/{quote(name)}/{quote(version)}") if index else ""
        case "go":
            escaped = (re.sub("[A-Z]", _go_escaped, quote(one)) for one in (name, version))
            return f"{base}{'/@v/'.join(escaped)}.info"
    return ""


def crates_config_address(index: str) -> str:
    """Return the address of a crates index's configuration."""
    return urljoin(index.removeprefix("sparse+").rstrip("/") + "/", "config.json")


def crates_config(body: bytes) -> tuple[str, str]:
    """Return the web API of a crates index and the place of its files, empty if it names none
    (cargo's manual, index format)."""
    try:
        data = json.loads(body)
        return str(data.get("api") or ""), str(data.get("dl") or "")
    except (ValueError, AttributeError, RecursionError):
        return "", ""


def facts(kind: str, body: bytes, versions: Iterable[str]) -> dict[str, RegistryFacts]:
    """Return the facts that an answer gives about these versions. Raise `ValueError` if it isn't an
    answer."""
    found = {}
    try:
        data = json.loads(body)
        for version in versions:
            with contextlib.suppress(KeyError):
                found[version] = _whole(_READERS[kind](data, version))
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the registry's answer can't be read ({type(error).__name__})") from error
    return found


def _whole(found: RegistryFacts) -> RegistryFacts:
    """Return those facts of an answer that have the right type: they are stored and shown."""
    size, licence = found.size, found.licence
    is_size = type(size) is int and 0 <= size < 2**53
    is_licence = isinstance(licence, str) and len(licence) <= MOST_LICENCE
    return found._replace(
        size=size if is_size else None,
        licence=licence if is_licence and str(licence).isprintable() else None,
        warning=found.warning[:MOST_WARNING].encode("ascii", "backslashreplace").decode(),
    )


def file_hosts(body: bytes, index: str) -> set[tuple[str, int]]:
    """Return the hosts that hold the files of a Simple API page. Raise `ValueError` as `facts`
    does."""
    try:
        urls = [urljoin(index, one["url"]) for one in json.loads(body)["files"]]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the index's answer can't be read ({type(error).__name__})") from error
    return set(sorted({host for url in urls if (host := host_of(url))})[:MOST_HOSTS])


def host_of(url: str) -> tuple[str, int] | None:
    """Return host and port of a web address; None if it isn't one."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    host = parts.hostname or ""
    is_one = host.isascii() and host.isprintable() and " " not in host
    if parts.scheme not in ("http", "https") or not host or not is_one or not port:
        return None
    return host.lower(), port


def _npm(data: dict[str, Any], version: str) -> RegistryFacts:
    entry = data["versions"][version]
    licence = entry.get("license")
    scripts = entry.get("scripts") or {}
    runs = bool(
        entry.get("hasInstallScript") or scripts.keys() & {"preinstall", "install", "postinstall"}
    )
    return RegistryFacts(
        _time((data.get("time") or {}).get(version)),
        (entry.get("dist") or {}).get("unpackedSize"),
        licence if isinstance(licence, str) else None,
        runs,
        f"deprecated: {entry['deprecated']}" if entry.get("deprecated") else "",
        str((entry.get("dist") or {}).get("tarball") or ""),
        str((entry.get("dist") or {}).get("integrity") or ""),
        _link(entry.get("repository")),
    )


def _pypi(data: dict[str, Any], version: str) -> RegistryFacts:
    """Return the files of this version: their names give the version (PEP 427, PEP 625)."""
    files = [one for one in data["files"] if _is_of(one["filename"], version)]
    if not files:
        return RegistryFacts()
    times = [at for one in files if (at := _time(one.get("upload-time"))) is not None]
    wheel = next((one for one in files if one["filename"].endswith(".whl")), files[0])
    yanked = next((one["yanked"] for one in files if one.get("yanked")), "")
    why = f": {yanked}" if isinstance(yanked, str) and yanked else ""
    hashes = [(one.get("hashes") or {}).get("sha256") for one in files]
    return RegistryFacts(
        min(times, default=None),
        wheel.get("size"),
        None,
        None,
        f"yanked{why}" if yanked else "",
        str(wheel.get("url") or ""),
        " ".join(f"sha256:{one}" for one in hashes if one),
    )


def _is_of(file: str, version: str) -> bool:
    stem = file
    for suffix in (".whl", ".tar.gz", ".zip", ".tar.bz2"):
        stem = stem.removesuffix(suffix)
    return version in stem.split("-")


def _crates(data: dict[str, Any], version: str) -> RegistryFacts:
    entry = data["version"]
    return RegistryFacts(
        _time(entry.get("created_at")),
        entry.get("crate_size"),
        entry.get("license"),
        None,
        "yanked" if entry.get("yanked") else "",
        link=_link(entry.get("repository")),
    )


def _go(data: dict[str, Any], version: str) -> RegistryFacts:
    if data["Version"] != version:
        raise KeyError
    # Go runs nothing of a module that it gets.
    link = _link((data.get("Origin") or {}).get("URL"))
    return RegistryFacts(_time(data.get("Time")), has_scripts=False, link=link)


def _go_escaped(letter: re.Match[str]) -> str:
    return f"!{letter[0].lower()}"


def _link(said: object) -> str:
    """Return the page of a repository; "" where it names none that a browser opens."""
    text = said.get("url") if isinstance(said, dict) else said
    found = _PAGE.fullmatch(text) if isinstance(text, str) and len(text) <= MOST_LINK else None
    return found[1] if found else ""


def project_link(addresses: Iterable[object]) -> str:
    """Return where a Python project's changes may be read; "" where it names no page for that.
    `addresses` are its `Project-URL`s: a label, a comma, and the address."""
    pages: dict[str, str] = {}
    for said in itertools.islice(addresses, MOST_ADDRESSES):
        label, _, address = str(said)[: 2 * MOST_LINK].partition(",")
        folded = re.sub(r"[^a-z]", "", label.lower())
        pages[folded] = pages.get(folded) or _link(address.strip())
    return next((pages[one] for one in (*_CHANGES, *_PROJECT) if pages.get(one)), "")


def _time(text: object) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


_READERS: dict[str, Callable[[Any, str], RegistryFacts]] = {
    "npm": _npm,
    "pypi": _pypi,
    "crates": _crates,
    "go": _go,
}
