"""`gatehouse policy import`: print another tool's permission lists as a policy.

The policy goes to standard output, for a person to save.
"""

import sys
from pathlib import Path

from supervisor.cli.lab.inputs import read_text
from supervisor.core.lab.claude_permissions import SettingsPlace, policy_text, translate


def import_claude(file: str | None) -> int:
    """Print the policy, and name on standard error each rule that isn't carried over. Return 0. The
    default file is the person's own, for every project."""
    path = Path(file) if file else Path.home() / ".claude/settings.json"
    imported = translate(
        read_text(path, "give a settings.json of Claude Code"), str(path), _place(path)
    )
    sys.stdout.write(policy_text(imported, str(path)))
    for left in imported.left:
        print(f"not carried over: {left}", file=sys.stderr)
    return 0


def _place(path: Path) -> SettingsPlace:
    """Return where the settings apply, by their path: `PROJECT/.claude/settings.json`, or below the
    person's home for every project."""
    folder = path.absolute().parent
    home = Path.home()
    if folder.name != ".claude":
        return SettingsPlace(home=str(home))
    if folder.parent == home:
        return SettingsPlace(home=str(home), is_user=True)
    return SettingsPlace(root=str(folder.parent), home=str(home))
