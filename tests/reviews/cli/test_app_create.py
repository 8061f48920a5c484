"""`gatehouse app create` against the demo's forge: the manifest, the way back, what is kept."""

import html
import json
import re
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from supervisor.errors import UserError
from supervisor.reviews.cli import app_create
from supervisor.reviews.cli.app_create import create
from supervisor.reviews.demo.stage import staged
from supervisor.settings import Settings
from tests.fakes.supervised import settings_in

MADE = {
    "id": 17,
    "slug": "gatehouse-abc",
    "html_url": "https://forge.example/apps/gatehouse-abc",
    "pem": "-----a key-----",
    "webhook_secret": "a long random secret",
}


def settings(folder: Path, api: str) -> Settings:
    return settings_in(folder, github_api=api)


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_a_browser_goes_there_and_back_and_the_app_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(app_create, "say", said.append)
    seen: dict[str, Any] = {}

    def browse(code: str) -> None:
        while not said:
            threading.Event().wait(0.05)
        page = re.search(r"(http://127\.0\.0\.1:(\d+)/)[\w-]{20,}", said[0])
        assert page is not None
        seen["others"] = [
            get(page[1])[0],
            get(f"{page[1]}x")[0],
            get(page[0], Host=f"rebound.example:{page[2]}")[0],
            get(page[0], Host=f"localhost:{page[2]}")[0],
            get(page[0], Host="127.0.0.1")[0],
        ]
        text = get(page[0])[1]
        seen["manifest"] = json.loads(html.unescape(re.findall(r'value="([^"]*)"', text)[0]))
        seen["action"] = html.unescape(re.findall(r'action="([^"]*)"', text)[0])
        state = seen["action"].partition("state=")[2]
        back = f"{page[1]}created?code=evil"
        seen["forged"] = [
            get(f"{back}&state={one}")[0] for one in ("other", page[0][-22:], "%C3%A9")
        ]
        rebound = f"rebound.example:{page[2]}"
        seen["rebound"] = get(f"{back}&state={state}", Host=rebound)[0]
        get(f"{seen['manifest']['redirect_url']}?code={code}&state={state}")

    with staged(tmp_path / "stage") as stage:
        stage.forge.manifests["c0de"] = MADE
        person = threading.Thread(target=browse, args=("c0de",))
        person.start()
        given = settings(tmp_path, stage.api)
        assert create(given, organization="acme", public_url="https://g.example") == 0
        person.join()
        assert seen["others"] == [404, 404, 403, 403, 403]
        assert (seen["forged"], seen["rebound"]) == ([404, 404, 404], 403)
        assert seen["action"].startswith(f"{stage.forge.url}/organizations/acme/settings/apps/new")
        assert seen["manifest"]["hook_attributes"]["url"] == "https://g.example/github"
        assert seen["manifest"]["default_permissions"]["contents"] == "read"
        folder = given.github_app_dir
        assert (folder / "key.pem").read_text() == MADE["pem"]
        assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
        assert json.loads((folder / "app.json").read_text())["id"] == "17"
        with pytest.raises(UserError, match="there is an App already"):
            create(given, organization="", public_url="https://g.example")


@pytest.mark.parametrize(
    ("organization", "url"), [("", "g.example"), ("", "ftp://g.example"), ("../x", "https://g")]
)
def test_what_can_not_be_is_said_at_once(tmp_path: Path, organization: str, url: str) -> None:
    with pytest.raises(UserError):
        create(
            settings(tmp_path, "https://forge.example/api/v3"),
            organization=organization,
            public_url=url,
        )
