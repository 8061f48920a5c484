"""Search texts with a regular expression, in a process of its own.

    python -I -S quarantine_search.py < QUERY

The agent's expression may never finish: then only this process is ended, and nothing else waits.
QUERY is a line of JSON, `{"pattern", "ignore_case", "sizes"}`, followed by the contents, one after
the other. Each matching line is printed as JSON: the content's number, the line's number from 1,
and its text.
"""

import json
import re
import resource
import sys

CPU_S, MEMORY_BYTES = 5, 1 << 30
MOST_LINES, MOST_LINE_CHARS = 1_000, 400


def main() -> int:
    """Search the input. Return 1 where the expression is invalid."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    query = json.loads(sys.stdin.buffer.readline())
    try:
        wanted = re.compile(query["pattern"], re.IGNORECASE if query["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(str(error)[:200])
        return 1
    left = MOST_LINES
    for number, size in enumerate(query["sizes"]):
        lines = sys.stdin.buffer.read(size).decode("utf-8", "replace").split("\n")
        for at, line in enumerate(lines, 1):
            if wanted.search(line):
                found = [number, at, line[:MOST_LINE_CHARS]]
                sys.stdout.write(f"{json.dumps(found)}\n")
                left -= 1
            if not left:
                return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
