"""Updates of dependencies as a job of a repository: npm itself updates, and what comes of it is one
pull request that says old and new versions, also after the next night's update."""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from supervisor.core.review_markdown import unescaped
from supervisor.reviews.app import reviewing
from supervisor.reviews.core.job_posts import branch_of
from supervisor.settings import ROOT
from tests.fakes import registry
from tests.fakes.registry import Registry
from tests.fakes.reviewed import NAME
from tests.scenarios.reviews.test_jobs import nights
from tests.scenarios.test_updates import LOUD, NEW_PAD, OLD_PAD, PAGE, REPOSITORY

pytestmark = [pytest.mark.xdist_group("reviews-jobs"), pytest.mark.timeout(300)]
JOB = "updates"
CONFIG = """
version: 1
tools: {allowlist: [filesystem, repo.write]}
schedule:
  cron: "0 3 * * *"
  jobs:
    - id: updates
      commandRef: dependency-updates
      updates: npm
      tests: node test.js
      output: {mode: pr_create, pr: {title: Newer dependencies}}
      writeScope: {include: ["src/**"]}
"""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    """The index of the machine's user. It is on loopback, which a rule must name."""
    with registry.serving() as served:
        served.add_npm("tidy-pad", "1.0.0", code=OLD_PAD)
        served.add_npm("loud", "1.0.0", code=LOUD)
        npmrc = Path(os.environ["HOME"]) / ".npmrc"
        npmrc.write_text(f"registry={served.url}/\n")
        shipped = (ROOT / "policy/examples/updates.yaml").read_text()
        policy = tmp_path / "updates.yaml"
        rule = f"allow:\n  - network(127.0.0.1:{served.port})\n"
        policy.write_text(shipped.replace("allow:\n", rule, 1))
        monkeypatch.setattr(reviewing, "UPDATES_POLICY", policy)
        yield served
        npmrc.unlink()


def project(folder: Path) -> dict[str, str]:
    folder.mkdir()
    wanted = {"tidy-pad": "^1.0.0", "loud": "^1.0.0"}
    manifest = {"name": "shop", "version": "1.0.0", "dependencies": wanted}
    (folder / "package.json").write_text(json.dumps(manifest))
    words = ["npm", "install", "--package-lock-only", "--no-audit", "--no-fund"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return {
        ".gitignore": "node_modules/\n",
        "package.json": json.dumps(manifest),
        "package-lock.json": (folder / "package-lock.json").read_text(),
        "src/price.js": "const pad = require('tidy-pad')\n"
        "exports.price = amount => pad.padStart(String(amount), 8)\n",
        "test.js": "const assert = require('assert')\n"
        "assert.strictEqual(require('./src/price').price(12), '      12')\n"
        "assert.strictEqual(require('loud')('a'), 'A')\n",
    }


@pytest.mark.many
async def test_each_night_s_updates_are_one_pull_request(tmp_path: Path, index: Registry) -> None:
    files = project(tmp_path / "project")
    index.add_npm("tidy-pad", "1.1.0", code=NEW_PAD, repository=REPOSITORY)
    async with nights(tmp_path, "github", CONFIG, name=JOB, files=files) as on:
        run = await on.night()
        assert (run.outcome, run.reason) == ("proposed", "")
        (asked,) = on.acts()
        assert asked.action.scope == ("**/package.json", "**/package-lock.json", "src/**")  # type: ignore[union-attr]
        assert (await on.done())["ok"], on.on.running.story()
        (pull,) = on.pulls
        body = unescaped(pull.body)
        assert "tidy-pad: 1.0.0 -> 1.1.0, " in body
        assert f" days old, {PAGE}\n" in body
        assert "**tidy-pad 1.1.0: the tests failed, and were mended**" in body
        assert "TypeError: pad.padStart is not a function" in body
        assert "Changed for it: A recorded model replaced" in body
        assert "**Tests**: `node test.js` passed" in body
        branch = branch_of(NAME, JOB)
        changed = on.git("diff", "--name-only", f"main..{branch}").split()
        assert changed == ["package-lock.json", "src/price.js"]
        assert on.git("log", "-1", "--format=%s", branch) == "Update tidy-pad from 1.0.0 to 1.1.0"
        # Nothing newer is old enough.
        young = (datetime.now(UTC) + timedelta(hours=30)).isoformat()
        index.add_npm("loud", "1.2.0", code=LOUD, published=young)
        assert (await on.night()).outcome == "nothing"
        index.add_npm("loud", "1.1.0", code=LOUD)
        assert (await on.night()).outcome == "proposed"
        assert (await on.done())["ok"], on.on.running.story()
        (pull,) = on.pulls
        body = unescaped(pull.body)
        assert "loud: 1.0.0 -> 1.1.0, " in body
        assert "tidy-pad: 1.0.0 -> 1.1.0, " in body
        assert f" days old, {PAGE}\n" in body


@pytest.mark.many
async def test_what_a_package_prints_is_no_command_in_the_commit_s_message(
    tmp_path: Path, index: Registry
) -> None:
    files = project(tmp_path / "project")
    index.add_npm("tidy-pad", "1.1.0", code=NEW_PAD, repository=REPOSITORY)
    words = (
        "[skip ci] [ci skip] ***NO_CI*** Fixes #7, see @octocat: fixes https://x.test/a/issues/1"
    )
    index.add_npm("loud", "1.1.0", code=f"throw new Error('{words}')")
    async with nights(tmp_path, "github", CONFIG, name=JOB, files=files) as on:
        run = await on.night()
        assert (run.outcome, run.reason) == ("proposed", "")
        assert (await on.done())["ok"], on.on.running.story()
        message = on.git("log", "-1", "--format=%B", branch_of(NAME, JOB))
    assert "loud 1.1.0 is held back" in message
    assert "skip ci" in message
    for one in ("[", "***", "#7", "@octocat", "https://x"):
        assert one not in message, message
