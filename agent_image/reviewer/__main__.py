"""Start the review agent in isolated mode.

    python3.13 -I /opt/gatehouse/agent_image/reviewer/__main__.py --base REV

Isolated mode is required, since the working directory is the code under review: without it, a file
`json.py` there would be imported instead of the real one. Isolated mode also ignores PYTHONPATH, so
the two needed folders are found from this file's own place. Before that, only the standard library
is imported.
"""

import sys

if not sys.flags.isolated:
    sys.exit("gatehouse: the review agent must run isolated; start it with `python -I`")

from pathlib import Path

_HERE = Path(__file__).resolve()
# /opt/gatehouse/agent_image/reviewer/__main__.py: the package's root, and the libraries bound
# beside it.
for _folder in (_HERE.parents[2], _HERE.parents[2] / "site-packages"):
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))

from agent_image.reviewer.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
