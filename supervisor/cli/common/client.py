"""The CLI's client of a running supervisor: the operator's JSON API over loopback.

It uses the token in the data folder. It imports only the standard library, and only where needed: a
verb must not wait for a web framework to load.
"""

import fcntl
import http.client
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from supervisor.errors import GatehouseError, UserError

NOT_RUNNING = "start one with `gatehouse up` or `make up`"
ANSWER_S = 30.0
# Time limit of a verb's first call, to a supervisor that holds its data folder.
STATUS_S = 10.0
# How long a starting or ending supervisor is waited for.
LOOKS, LOOK_EVERY_S = 100, 0.1


class LateError(UserError):
    """A supervisor takes too long; whether it does what was asked is unknown."""


class Client:
    """One supervisor, found by its data folder."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self._token = token

    @property
    def authorization(self) -> dict[str, str]:
        """Return the header for each call."""
        return {"Authorization": f"Bearer {self._token}"}

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET. Return the JSON answer."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", f"{path}?{urlencode(given)}" if given else path, None, ANSWER_S)

    def is_there(self) -> bool:
        """Return whether it answers us. Raise `LateError` where it doesn't respond."""
        try:
            self._ask("GET", "/api/status", None, STATUS_S)
        except LateError:
            raise
        except GatehouseError:
            return False
        return True

    def post(self, path: str, **body: Any) -> Any:
        """Send a POST with the fields that aren't None as a JSON body. Return the JSON answer."""
        return self._ask("POST", path, _given(body), ANSWER_S)

    def post_and_wait(self, path: str, **body: Any) -> Any:
        """Do as `post` for slow calls: wait as long as the supervisor lives, since giving up would
        leave the outcome unknown."""
        return self._ask("POST", path, _given(body), None)

    def patch(self, path: str, **body: Any) -> Any:
        """Send a PATCH with a JSON body. Return the JSON answer."""
        return self._ask("PATCH", path, _given(body), ANSWER_S)

    def delete(self, path: str) -> Any:
        """Send a DELETE. Return the JSON answer."""
        return self._ask("DELETE", path, None, ANSWER_S)

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, within_s: float | None
    ) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=within_s)
        headers = self.authorization | {"Content-Type": "application/json"}
        try:
            connection.connect()
        except OSError as error:
            raise UserError(
                f"the supervisor on port {self.port} doesn't answer", NOT_RUNNING
            ) from error
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        except TimeoutError as error:
            late = f"the supervisor on port {self.port} didn't answer within {within_s:g} s"
            raise LateError(
                late, "it may be done all the same: look before you try again"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            gone = f"the supervisor on port {self.port} ended before it answered"
            raise UserError(
                gone, "start it again: what it had begun is finished or taken back then"
            ) from error
        finally:
            connection.close()
        data = json.loads(text) if text else None
        if answer.status >= 400:
            raise _error(answer.status, data)
        return data


def _given(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def find(data_dir: Path) -> Client | None:
    """Return the running supervisor of a data folder, or None. Wait for one that is just starting
    or ending, so that all verbs report the same."""
    for _ in range(LOOKS):
        if not _is_held(data_dir):
            return None
        client = _answering(data_dir)
        if client is not None:
            return client
        time.sleep(LOOK_EVERY_S)
    raise UserError(
        f"a Gatehouse starts or ends on {data_dir}, and doesn't answer yet", "try again in a moment"
    )


def must_find(data_dir: Path) -> Client:
    """Return the running supervisor of a data folder. Raise `UserError` where none runs."""
    client = find(data_dir)
    if client is None:
        raise UserError(f"no Gatehouse runs on {data_dir}", NOT_RUNNING)
    return client


def _is_held(data_dir: Path) -> bool:
    """Return whether a supervisor holds its data folder. Files of a dead one, such as a port that
    somebody else may have by now, are never trusted."""
    try:
        descriptor = os.open(data_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _answering(data_dir: Path) -> Client | None:
    try:
        contact = json.loads((data_dir / "supervisor.json").read_bytes())
        token = (data_dir / "operator.token").read_bytes().decode("ascii").strip()
        client = Client(int(contact["port"]), token)
        return client if client.is_there() else None
    except (FileNotFoundError, ValueError, TypeError, KeyError, OverflowError):
        return None
    except LateError as error:
        raise UserError(
            f"{error.message}: process {contact['pid']} stands still, or has too much to do",
            "let it go on, or end it",
        ) from error


def _error(status: int, data: Any) -> GatehouseError:
    if not isinstance(data, dict):
        return UserError(f"the supervisor answered {status}")
    return UserError(str(data.get("why") or data.get("error")), str(data.get("remedy") or ""))
