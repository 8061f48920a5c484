"""The repository and the pull request of `gatehouse demo`, and the forge that holds them.

The bugs in the change are planted: agent_image/reviewer/recorded/pull_request.json knows them.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from supervisor.reviews.demo.forge import DemoForge, DemoPull
from supervisor.reviews.demo.rest import serving
from supervisor.sessions.demo_project import CHANGED, FILES

NAME = "acme/shop"
TITLE = "Look orders up by their number, and show the average"

JOB = "docs-drift"
# A page that the code contradicts (agent_image/reviewer/recorded/docs_drift.json), and the job that
# corrects it.
DRIFTED = {
    "docs/orders.md": (
        "# Orders\n\n`orders(database, limit=100)` returns the newest orders, at most `limit` of"
        " them.\n"
    ),
    ".reviewerc": (
        "version: 1\n"
        "tools: {allowlist: [filesystem, git.read, git.history, github.read, repo.write]}\n"
        "schedule:\n"
        '  cron: "0 3 * * *"\n'
        "  jobs:\n"
        f"    - id: {JOB}\n"
        f"      commandRef: {JOB}\n"
        '      output: {mode: pr_create, pr: {title: "Docs: what the code does"}}\n'
        '      writeScope: {include: ["docs/**"]}\n'
    ),
}


class Stage(NamedTuple):
    """A served forge: the base of its API, and the files with its App's secrets."""

    forge: DemoForge
    api: str
    app_id: str
    key_file: Path
    secret_file: Path

    def plan_night(self) -> None:
        """Have a page drift from the code, and a job that corrects it every night."""
        self.forge.permissions["contents"] = "write"
        self.forge.commit(NAME, "main", DRIFTED, "Say what orders do, and check that at night")

    def open_pull(self, webhooks: str) -> DemoPull:
        """Have webhooks sent to this address, and open the pull request with the planted bugs."""
        self.forge.hook = (webhooks, self.secret_file.read_bytes())
        self.forge.commit(NAME, "find-orders", CHANGED, TITLE, base="main")
        return self.forge.open_pull(NAME, "find-orders", title=TITLE)


@functools.cache
def _key() -> rsa.RSAPrivateKey:
    """Make the App's key, once for all stages of a process: it takes a tenth of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Make the forge in a folder, and serve it until the block ends."""
    forge = DemoForge(folder / "forge")
    forge.folder.mkdir(parents=True)
    key = _key()
    forge.app_key = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    key_file, secret_file = folder / "app.pem", folder / "webhook.secret"
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    secret_file.write_bytes(b"a secret that only this demo knows")
    forge.add_repository(NAME, FILES)
    forge.repositories[NAME].collaborators = {"ada": "write"}
    with serving(forge) as api:
        yield Stage(forge, api, forge.app_id, key_file, secret_file)
