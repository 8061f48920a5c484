"""Pass standard input to a named pipe, and what comes by another to standard output.

    python3.13 -I -S tool_bridge.py GOING COMING

Claude Code starts it as an MCP server; the server itself is in the review agent (`tool_server`),
so that neither its token nor its state leaves that. It imports nothing of ours.
"""

import os
import sys
import threading


def main(going: str, coming: str) -> None:
    """Pass on bytes until standard input ends."""
    out, back = os.open(going, os.O_WRONLY), os.open(coming, os.O_RDONLY)
    threading.Thread(target=_pass_on, args=(back, 1), daemon=True).start()
    _pass_on(0, out)


def _pass_on(source: int, target: int) -> None:
    while piece := os.read(source, 65_536):
        while piece:
            piece = piece[os.write(target, piece) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
