"""Changed files: differences, cards, and the hunks that a person ticked.

Compares values only; `supervisor/workspace` reads and writes the disk. Start with `changes` and
`change_card`.
"""
