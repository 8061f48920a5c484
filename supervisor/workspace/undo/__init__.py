"""Take applied changes back: everything chosen, or nothing.

Start with `undo_plan` (what it would do), then `undo`.
"""
