"""Load the engine's tables of data (`core/text/data/*.yaml`), once.

They are part of the program, like its code: fixed at installation, never read from a workspace.
This is the only place in the core that reads files, and it reads no others.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent / "data"


@cache
def table(name: str) -> Any:
    """Return the content of `core/text/data/NAME.yaml`. Shared: never change it."""
    # The C loader is safe too, and ten times faster; it is missing where PyYAML was built without
    # libyaml.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 (a safe loader)
