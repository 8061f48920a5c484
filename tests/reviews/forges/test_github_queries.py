"""Our GraphQL beside GitHub's own schema: each query is one that GitHub can answer."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from supervisor.reviews.forges import github

PACKAGES = ("@octokit/graphql-schema@15.26.1", "graphql@16.15.0")
CHECK = """
const { buildSchema, parse, validate } = require("./graphql");
const { readFileSync } = require("fs");
const schema = buildSchema(readFileSync("schema.graphql", "utf8"), { assumeValid: true });
const queries = JSON.parse(readFileSync(0, "utf8"));
const said = queries.map((one) => validate(schema, parse(one)).map((error) => error.message));
console.log(JSON.stringify(said));
"""


def test_github_can_answer_what_is_asked(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    for package in PACKAGES:
        subprocess.run(
            ["npm", "pack", "--silent", package], cwd=tmp_path, check=True, capture_output=True
        )
    for archive in tmp_path.glob("*.tgz"):
        subprocess.run(["tar", "xzf", archive.name], cwd=tmp_path, check=True)
        folder = "schema" if "octokit" in archive.name else "graphql"
        (tmp_path / "package").rename(tmp_path / folder)
    shutil.copy(tmp_path / "schema/schema.graphql", tmp_path)
    wrong = "query { repository(owner: 1) { pullRequests { reviewThread } } }"
    done = subprocess.run(
        ["node", "-e", CHECK],
        cwd=tmp_path,
        input=json.dumps([github.THREADS, github.RESOLVE, wrong]),
        check=True,
        capture_output=True,
        text=True,
    )
    threads, resolve, refused = json.loads(done.stdout)
    assert (threads, resolve) == ([], [])
    assert len(refused) > 1
