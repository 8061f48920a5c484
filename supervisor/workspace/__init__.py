"""Workspace channel: the agent's private copy, and the judged way of changes back to the host.

INVARIANT: every path is opened relative to a directory descriptor, component by component, never
through a symlink (`disk/beneath`). The copy belongs to a hostile writer at all times, and the
host's folder is never assumed to hold still.

`copy/` makes the copy, `compare/` finds and asks, `apply/` writes to the host, `incoming/` brings
in the host's changes, `undo/` takes back, `trees/` knows both. Start with `channel`.
"""
