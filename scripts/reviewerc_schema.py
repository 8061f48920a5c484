"""Write docs/reviewerc.schema.json from the shapes of `.reviewerc`."""

import json
from pathlib import Path

from supervisor.reviews.core.config.shapes import json_schema

if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs/reviewerc.schema.json"
    path.write_text(json.dumps(json_schema(), indent=2) + "\n", "utf-8")
    print(f"wrote {path}")
