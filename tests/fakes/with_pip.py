"""A Python that has pip: the environment of the tests has none."""

import functools
import subprocess
import sys
from pathlib import Path


@functools.cache
def python_with_pip() -> str:
    """The one that this environment was made of, or else the system's; empty where neither has
    pip."""
    of_this = (
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    )
    for found in (of_this, Path("/usr/bin/python3")):
        asked = [found, "-c", "import pip"]
        if (
            found.exists()
            and subprocess.run(asked, capture_output=True, check=False).returncode == 0
        ):
            return str(found)
    return ""
