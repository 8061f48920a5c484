"""One request to the forge's API: who calls, for which repository, and how it is refused."""

import json
import time
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qs

import jwt

from supervisor.reviews.demo.forge import DemoForge
from supervisor.reviews.demo.state import DemoPull, DemoRepository, Json


class Refusal(Exception):  # noqa: N818
    """A response that isn't a success, or is elsewhere."""

    def __init__(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = headers or {}
        super().__init__(str(body))


def refuse(status: int, message: str, *errors: Any) -> NoReturn:
    """Answer with a status and GitHub's body for it."""
    raise Refusal(status, {"message": message} | ({"errors": errors} if errors else {}))


def missing(message: str = "Not Found") -> Refusal:
    """Return GitHub's response for what isn't there."""
    return Refusal(404, {"message": message})


class Call:
    """A request to the API, with the repository of its path."""

    def __init__(
        self, forge: DemoForge, headers: Mapping[str, str], body: bytes, path: str, query: str
    ) -> None:
        self.forge = forge
        self.path = path
        self.queries = parse_qs(query)
        self.query = {name: values[-1] for name, values in self.queries.items()}
        # What the answer's headers say, too.
        self.headers: dict[str, str] = {}
        lower = {name.lower(): value for name, value in headers.items()}
        self.authorization = lower.get("authorization", "")
        self.accept = lower.get("accept", "")
        self._body = body

    @property
    def json(self) -> Json:
        """Return the body as JSON."""
        try:
            found = json.loads(self._body or b"{}")
        except ValueError:
            refuse(400, "Problems parsing JSON")
        return found if isinstance(found, dict) else {}

    def as_app(self) -> None:
        """Refuse a caller other than the App."""
        scheme, _, token = self.authorization.partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise ValueError
            jwt.decode(token, self.forge.app_key, ["RS256"], issuer=self.forge.app_id, leeway=5)
        except (ValueError, jwt.InvalidTokenError):
            refuse(401, "A JSON web token could not be decoded")

    def repository(self, full_name: str, *permissions: str, level: str = "read") -> DemoRepository:
        """Return the repository, if one of these permissions lets the token do that there."""
        token = self.forge.tokens.get(self.authorization.partition(" ")[2])
        if token is None or token.expires_at <= time.time():
            refuse(401, "Bad credentials")
        found = self.forge.repositories.get(full_name)
        if found is None or full_name not in token.repositories:
            refuse(404, "Not Found")
        enough = ("read", "write") if level == "read" else ("write",)
        if "metadata" not in permissions and not any(
            token.permissions.get(one) in enough for one in permissions
        ):
            refuse(403, "Resource not accessible by integration")
        return found


def pull_of(repository: DemoRepository, number: str) -> DemoPull:
    found = repository.pulls.get(int(number))
    if found is None:
        refuse(404, "Not Found")
    return found


def page(call: Call, found: list[Any]) -> list[Any]:
    size, page = int(call.query.get("per_page", 30)), int(call.query.get("page", 1))
    return found[(page - 1) * size : page * size]
