"""What a hostile agent would try. Runs inside a real sandbox, and outside it for the attempts that
must be able to succeed.

    python3 hostile WORLD.json [NAME...]      standard library only; prints one JSON list of [name,
                                              escaped, detail]

Each attempt returns text when it got what it wanted, and returns None or raises when it was
stopped. They are in the other modules here, which put them into the table of `kit`.
"""

import json
import sys
from pathlib import Path

import host_files  # noqa: F401
import privileges  # noqa: F401
import processes  # noqa: F401
import sockets  # noqa: F401
import written_files  # noqa: F401
from kit import ATTEMPTS, WORLD


def main():
    WORLD.update(json.loads(Path(sys.argv[1]).read_text()))
    results = []
    for name in sys.argv[2:] or ATTEMPTS:
        try:
            got = ATTEMPTS[name]()
            results.append(
                [name, got is not None, str(got) if got is not None else "nothing to be had"]
            )
        except Exception as error:
            results.append([name, False, f"{type(error).__name__}: {error}"])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
