"""Changed files: what differs, how a card shows it, and which hunks a person ticked.

Compares values only; `supervisor/workspace` reads and writes the disk.
Start with `changes` and `change_card`.
"""
