"""Pushes: the updates that a push asks for, and the card of what it would move.

Pure: objects come as data. No git runs here, and rules are in `core.policy`. Start with `wishes`,
then `push_card`.
"""
