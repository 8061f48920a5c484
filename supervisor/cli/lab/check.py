"""`gatehouse policy check`: actions on standard input, answers on standard output.

Both are JSON lines.
"""

import sys

from supervisor.base.clock import RealClock


def check(policy_file: str | None, workspace: str | None) -> int:
    """Answer every line. Return 0. Each line may carry its own policy and workspace (docs/policy.md
    documents the fields)."""
    policy = None
    if policy_file is not None:
        from supervisor.cli.lab.inputs import read_policy

        policy = read_policy(policy_file)
    if sys.stdin.isatty():
        said = "reading actions from the terminal, a line of JSON each; ^D ends"
        print(f"gatehouse: {said}", file=sys.stderr, flush=True)
    now = RealClock().now()
    for line in sys.stdin.buffer:
        # The engine is imported with the first line. A blank line is an error: it is answered,
        # never skipped.
        from supervisor.core.lab.check import answer
        from supervisor.workspace.disk.links import look

        sys.stdout.buffer.write(answer(line, policy, workspace, now, look=look) + b"\n")
    sys.stdout.buffer.flush()
    return 0
