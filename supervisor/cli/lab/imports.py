"""`gatehouse policy import`: another tool's permission lists as a policy, on standard output for
a person to save."""

import sys
from pathlib import Path

from supervisor.cli.lab.inputs import read_text
from supervisor.core.lab.claude_permissions import SettingsPlace, policy_text, translate


def import_claude(file: str | None) -> int:
    """Print the policy; name each rule that isn't carried over on standard error, too. 0. Without
    a file it is the person's own, for every project."""
    path = Path(file) if file else Path.home() / ".claude/settings.json"
    imported = translate(
        read_text(path, "give a settings.json of Claude Code"), str(path), _place(path)
    )
    sys.stdout.write(policy_text(imported, str(path)))
    for left in imported.left:
        print(f"not carried over: {left}", file=sys.stderr)
    return 0


def _place(path: Path) -> SettingsPlace:
    """Where the settings lie, by their path: `PROJECT/.claude/settings.json`, or below the
    person's home for every project."""
    folder = path.absolute().parent
    home = Path.home()
    if folder.name != ".claude":
        return SettingsPlace(home=str(home))
    if folder.parent == home:
        return SettingsPlace(home=str(home), is_user=True)
    return SettingsPlace(root=str(folder.parent), home=str(home))
