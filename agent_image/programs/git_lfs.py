"""Git LFS's transfers where git reaches a remote by Gatehouse: a custom transfer agent.

Git LFS can't speak to `gatehouse::URL`, so it hands each file to this agent (git-lfs's
custom-transfers.md), which has git-lfs itself speak to the server at the remote's https address: a
connection as any other, which is asked about. Servers that are only reached by ssh are refused.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

HELPED = re.compile(r"gatehouse::(https?)(://.*)\Z")
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n"


class Transfers:
    """The transfers of one remote. `env` is that of a git-lfs that knows the server's address."""

    def __init__(self, remote):
        self.remote = remote
        done = subprocess.run(
            ["git", "ls-remote", "--get-url", remote],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
        found = HELPED.match(done.stdout.strip())
        self.env = None
        if found:
            address = found[2].rstrip("/").removesuffix(".git")
            # In capitals, no rule of `insteadOf` sends it here again.
            self.env = with_config(lfs_url=f"{found[1].upper()}{address}.git/info/lfs")

    def upload(self, given):
        """Have git-lfs upload one file."""
        words = ["git", "lfs", "push", "--object-id", self.remote, given["oid"]]
        return self.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def download(self, given):
        """Have git-lfs download one file; return where it is."""
        pointer = POINTER.format(oid=given["oid"], size=int(given["size"]))
        with tempfile.TemporaryFile() as wanted, tempfile.NamedTemporaryFile(delete=False) as came:
            wanted.write(pointer.encode())
            wanted.seek(0)
            failed = self.run(["git", "lfs", "smudge"], stdin=wanted, stdout=came)
            if failed:
                os.unlink(came.name)  # noqa: PTH108
            return failed or {"path": came.name}

    def run(self, words, **streams):
        """Run git-lfs; return its failure, if it fails."""
        if self.env is None:
            return failure("Gatehouse carries Git LFS's files by https alone; ask the person")
        done = subprocess.run(
            words, env=self.env, stderr=subprocess.PIPE, encoding="utf-8", check=False, **streams
        )
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return failure(lines[-1]) if done.returncode else {}


def failure(why):
    """Return the part of an answer that says why a file wasn't transferred."""
    return {"error": {"code": 1, "message": why}}


def with_config(lfs_url):
    """Return the environment with this address of the server (git-config(1), GIT_CONFIG_COUNT)."""
    count = os.environ.get("GIT_CONFIG_COUNT", "0")
    number = int(count) if count.isdecimal() else 0
    return os.environ | {
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": "lfs.url",
        f"GIT_CONFIG_VALUE_{number}": lfs_url,
    }


def main():
    """Answer git-lfs's lines until it has no more."""
    transfers = None
    for line in sys.stdin:
        given = json.loads(line)
        if given["event"] == "init":
            transfers = Transfers(given["remote"])
            answer = {}
        elif given["event"] in ("upload", "download"):
            result = getattr(transfers, given["event"])(given)
            answer = {"event": "complete", "oid": given["oid"], **result}
        else:
            return
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
