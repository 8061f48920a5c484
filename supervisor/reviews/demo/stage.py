"""The repository and the pull request of `gatehouse demo`, and the forge that holds them.

The bugs in the change are planted: agent_image/reviewer/recorded/pull_request.json knows them.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from supervisor.reviews.demo.bitbucket_json import API
from supervisor.reviews.demo.forge import DemoForge, DemoPull
from supervisor.reviews.demo.server import serving
from supervisor.reviews.demo.state import DemoHook, Tongue
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


# What our token may do at Bitbucket, and what our webhook is told there.
SCOPES = ("repository:write", "repository:admin", "pullrequest:write", "webhook:write")
EVENTS = (
    *(f"pullrequest:{one}" for one in ("created", "updated", "fulfilled", "rejected")),
    *("pullrequest:comment_created", "repo:push"),
)


class Stage(NamedTuple):
    """A served forge: the base of its API, and the files with our secrets there: GitHub's App has a
    key, Bitbucket's account a token."""

    forge: DemoForge
    api: str
    app_id: str
    key_file: Path
    secret_file: Path
    token_file: Path

    def settings(self) -> dict[str, Any]:
        """Return the settings by which a supervisor serves this forge."""
        if self.forge.tongue == "bitbucket":
            return {
                "bitbucket_api": self.api,
                "bitbucket_repos": tuple(
                    name for name, one in self.forge.repositories.items() if not one.is_public
                ),
                "bitbucket_token_file": self.token_file,
                "bitbucket_secret_file": self.secret_file,
            }
        return {
            "github_api": self.api,
            "github_app_id": self.app_id,
            "github_key_file": self.key_file,
            "github_secret_file": self.secret_file,
        }

    def environment(self) -> dict[str, str]:
        """Return these settings as environment variables."""
        return {
            f"GATEHOUSE_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in self.settings().items()
        }

    def tell(self, door: str) -> None:
        """Have webhooks sent to the door for them of a supervisor."""
        url = f"{door}/{self.forge.tongue}"
        self.forge.hook = (url, self.secret_file.read_bytes())
        secret = self.secret_file.read_text()
        for one in self.forge.repositories.values():
            one.hooks[:] = [DemoHook("{our hook}", url, list(EVENTS), secret)]

    def plan_night(self) -> None:
        """Have a page drift from the code, and a job that corrects it every night."""
        self.forge.permissions["contents"] = "write"
        self.forge.commit(NAME, "main", DRIFTED, "Say what orders do, and check that at night")

    def open_pull(self, door: str) -> DemoPull:
        """Have webhooks sent to this door, and open the pull request with the planted bugs."""
        self.tell(door)
        self.forge.commit(NAME, "find-orders", CHANGED, TITLE, base="main")
        return self.forge.open_pull(NAME, "find-orders", title=TITLE)


@functools.cache
def _key() -> rsa.RSAPrivateKey:
    """Make the App's key, once for all stages of a process: it takes a tenth of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@contextlib.contextmanager
def staged(folder: Path, tongue: Tongue = "github") -> Iterator[Stage]:
    """Make the forge in a folder, and serve it until the block ends."""
    login = "gatehouse[bot]" if tongue == "github" else "gatehouse"
    forge = DemoForge(folder / "forge", login, tongue)
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
    token_file = folder / "bitbucket.token"
    token_file.write_text(forge.bitbucket_token("acme/", scopes=SCOPES))
    token_file.chmod(0o600)
    with serving(forge) as api:
        api = api if tongue == "github" else f"{forge.url}{API}"
        yield Stage(forge, api, forge.app_id, key_file, secret_file, token_file)
