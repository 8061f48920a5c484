"""Workspace channel: the agent's private copy, and the judged way of its changes to the host.

INVARIANT: every path is opened relative to a directory descriptor, component by component, never
through a symlink (`disk/beneath`). A hostile program may write to the copy at any time, and the
host's folder may change at any time.

`copy/` makes the copy, `compare/` finds changes and asks, `apply/` writes to the host, `incoming/`
brings in the host's changes, `undo/` undoes, `trees/` knows both. Start with `channel`.
"""
