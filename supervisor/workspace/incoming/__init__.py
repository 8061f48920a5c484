"""From the host to the copy: what the person changes, and conflicts of both.

Start with `incoming`.
"""
