"""From the host to the copy: the person's changes, and conflicts of both sides.

Start with `incoming`.
"""
