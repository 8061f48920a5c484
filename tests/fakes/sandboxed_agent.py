"""An agent of a few lines, for tests: it makes the given calls of the agent API from inside its
sandbox and prints each answer.

It runs there as `python -c`, with the Python that runs the tests, so the script may use the
standard library only.
"""

import json
import sys
from typing import Any

type Call = tuple[str, dict[str, Any]]

_MARK = "ANSWER "
_SCRIPT = r"""
import json, os, sys, threading, urllib.error, urllib.request

def call(method, path, body=None):
    request = urllib.request.Request(
        os.environ["GATEHOUSE_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": "Bearer " + os.environ["GATEHOUSE_TOKEN"], "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {"http": error.code, **json.load(error)}

def ask(path, body):
    answer = call("POST", path, body)
    for _ in range(5):
        if "id" not in answer or answer["settled"]:
            break
        answer = call("GET", "/v1/requests/%s?wait=30" % answer["id"])
    print("ANSWER " + json.dumps(answer) + "\n", end="", flush=True)

threads = []
for path, body in json.loads(sys.argv[1]):
    threads.append(threading.Thread(target=ask, args=(path, body)))
    threads[-1].start()
    if sys.argv[2] != "at once":
        threads[-1].join()
for thread in threads:
    thread.join()
"""  # noqa: E501


def agent_command(*calls: Call, at_once: bool = False) -> tuple[str, ...]:
    """The command of an agent that makes these POSTs, and waits for each until nothing more comes
    of it.

    One after another, or all at once; then the answers come in the order in which they are settled.
    """
    return (sys.executable, "-c", _SCRIPT, json.dumps(calls), "at once" if at_once else "in order")


def answers(output: str) -> list[dict[str, Any]]:
    """What it was answered."""
    return [
        json.loads(line.removeprefix(_MARK))
        for line in output.splitlines()
        if line.startswith(_MARK)
    ]
