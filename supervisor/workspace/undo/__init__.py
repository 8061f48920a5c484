"""Takes applied changes back, all that was chosen or nothing.

Start with `undo_plan` (what it would do), then `undo`.
"""
