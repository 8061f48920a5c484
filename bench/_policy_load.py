"""One load of a policy in a process of its own, so that its memory can be told: `python -m
bench._policy_load RULES [examples]`.

Prints JSON: milliseconds of processor time for the tables and until the policy can be asked, and
the megabytes that the process holds then and more than before.
"""

import json
import sys
import time
from pathlib import Path

from bench._policy_rules import CATEGORIES, policy_text, rows


def main() -> None:
    count, examples = int(sys.argv[1]), "examples" in sys.argv[2:]
    text = policy_text(rows(count), examples=examples)
    import supervisor.core.policy.policy_text as reader

    # The engine's own tables are read once in a process, whatever is loaded.
    start = time.process_time()
    reader.parse_policy(policy_text(rows(30), examples=True), "tables.yaml")
    tables_ms = (time.process_time() - start) * 1000
    before_mb = _resident_mb()
    start = time.process_time()
    policy = reader.parse_policy(text, "bench.yaml")
    for category in CATEGORIES:
        policy.judge_for(category)
    ready_ms = (time.process_time() - start) * 1000
    resident_mb = _resident_mb()
    print(
        json.dumps(
            {
                "tables_ms": tables_ms,
                "ready_ms": ready_ms,
                "mb": resident_mb,
                "more_mb": resident_mb - before_mb,
            }
        )
    )


def _resident_mb() -> float:
    line = next(
        one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
