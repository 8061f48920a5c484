"""Checks of the review service's requirements, done for real: `gatehouse doctor` prints them.

It only reads and changes nothing, because a supervisor may be running beside it.
"""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from supervisor.base.clock import Clock, RealClock
from supervisor.core.text.duration import format_duration
from supervisor.errors import GatehouseError
from supervisor.reviews.app.reviewing import GitHubApp, has_app, read_app
from supervisor.reviews.core.bitbucket_tokens import expiry_words
from supervisor.reviews.forges.bitbucket_checks import check_repository, is_data_center
from supervisor.reviews.forges.bitbucket_login import (
    CLOUD_ALONE,
    DATA_CENTER,
    bitbucket_of,
    is_bitbucket_set_up,
    read_bitbucket,
)
from supervisor.reviews.forges.github import GitHub
from supervisor.reviews.store.figures import OLDEST_S, backlog
from supervisor.sandbox.check_result import CheckResult, bad
from supervisor.settings import Settings
from supervisor.store.engine import open_read_only

# A longer secret isn't a word that can be guessed.
GOOD_SECRET_BYTES = 20
_OTHERS_MAY = 0o077


async def findings(settings: Settings, clock: Clock | None = None) -> AsyncIterator[CheckResult]:
    """Yield the findings, the most fundamental first."""
    clock = clock or RealClock()
    if is_bitbucket_set_up(settings):
        async for found in _bitbucket(settings, clock):
            yield found
    if has_app(settings) or not is_bitbucket_set_up(settings):
        try:
            app = read_app(settings)
        except GatehouseError as error:
            yield bad("GitHub App", error.message, error.remedy)
        else:
            yield _secret(app.secret, "GitHub")
            yield await _forge(settings, app)
    for one in (_backlog(settings, clock), _clones(settings.clones_dir)):
        yield one
    yield _receipts_key(settings.data_dir / "receipts.key")


def _database(settings: Settings) -> Path:
    return settings.data_dir / "reviews.db"


async def _bitbucket(settings: Settings, clock: Clock) -> AsyncIterator[CheckResult]:
    """Yield what the token may do in each repository."""
    name, remedy = "Bitbucket", "`gatehouse bitbucket setup` walks you through it"
    try:
        login = read_bitbucket(settings)
    except GatehouseError as error:
        yield bad(name, error.message, error.remedy or remedy)
        return
    if await is_data_center(settings.bitbucket_api):
        yield bad(name, DATA_CENTER, CLOUD_ALONE)
        return
    yield _secret(login.secret, name)
    if words := expiry_words(login.token, clock.now()):
        yield bad("Bitbucket token", words, remedy, needed=False)
    forge = bitbucket_of(settings, login, clock)
    try:
        for repository in login.repositories:
            for one in await check_repository(forge, repository):
                if one.why:
                    yield bad(name, f"{one.what}: {one.why}", remedy, needed=one.needed)
                else:
                    yield CheckResult(name, ok=True, detail=one.what)
    finally:
        await forge.close()


def _secret(secret: bytes, forge: str) -> CheckResult:
    name, count = f"webhook secret of {forge}", len(secret)
    if count < GOOD_SECRET_BYTES:
        remedy = f"take {GOOD_SECRET_BYTES} random characters or more, at {forge} and here"
        return bad(name, f"it has {count} characters", remedy, needed=False)
    return CheckResult(name, ok=True, detail=f"{count} characters")


async def _forge(settings: Settings, app: GitHubApp) -> CheckResult:
    """Ask the forge, as the App, who the App is."""
    name = "GitHub App"
    forge = GitHub(api=settings.github_api, app_id=app.id, private_key=app.key, now=RealClock().now)
    try:
        login = await forge.own_login()
    except GatehouseError as error:
        remedy = "check the App's id and key, GATEHOUSE_GITHUB_API, and this machine's clock"
        return bad(name, f"{settings.github_api} does not take it: {error.message}", remedy)
    finally:
        await forge.close()
    return CheckResult(name, ok=True, detail=f"{login} at {settings.github_api}")


def _backlog(settings: Settings, clock: Clock) -> CheckResult:
    """Report unhandled webhooks. INVARIANT: a webhook that isn't handled for minutes is a failure,
    even if all else is well: nothing else would show it."""
    name, file = "reviews database", _database(settings)
    if not file.is_file():
        return CheckResult(name, ok=True, detail="is made at the first start")
    try:
        engine = open_read_only(file)
        try:
            with engine.connect() as connection:
                found = backlog(connection)
        finally:
            engine.dispose()
    except GatehouseError as error:
        return bad(name, error.message, error.remedy)
    old_s = 0.0 if found.oldest_at is None else clock.now() - found.oldest_at
    waits = f"{found.unhandled} webhooks and {found.waiting} reviews wait"
    if old_s > OLDEST_S:
        return bad(
            name,
            f"{waits}; the oldest webhook for {format_duration(old_s)}",
            "see docs/operations.md, F8: `gatehouse deliveries list` says why",
        )
    return CheckResult(name, ok=True, detail=waits)


def _clones(folder: Path) -> CheckResult:
    name = "clones"
    nearest = next(one for one in (folder, *folder.parents) if one.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return bad(
            name, f"{nearest} can't be written", "make it yours, or give another data folder"
        )
    size = _size(folder)
    free = os.statvfs(nearest).f_bavail * os.statvfs(nearest).f_frsize
    if not free:
        return bad(name, f"the disk of {nearest} is full", "free some room: clones may be removed")
    detail = f"{folder}: {size / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
    return CheckResult(name, ok=True, detail=detail)


def _size(folder: Path) -> int:
    """Return the disk space in bytes used below a folder, as du(1) counts it."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                facts = os.lstat(f"{place}/{name}")
            except OSError:
                continue
            if (key := (facts.st_dev, facts.st_ino)) not in seen:
                seen.add(key)
                total += facts.st_blocks * 512
    return total


def _receipts_key(file: Path) -> CheckResult:
    name = "receipts key"
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
        Ed25519PrivateKey.from_private_bytes(file.read_bytes())
    except FileNotFoundError:
        return CheckResult(name, ok=True, detail="is made at the first start")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no Ed25519 key"
        return bad(name, f"{file}: {why}", "restore it: without it no receipt can be signed")
    if mode & _OTHERS_MAY:
        return bad(name, f"{file} can be read by others", f"chmod 600 {file}")
    return CheckResult(name, ok=True, detail=str(file))
