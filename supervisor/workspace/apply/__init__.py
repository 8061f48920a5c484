"""Changes the host as a grant says: whole or not at all, over crashes and full disks.

Start with `effects` (claims and settles) and `apply` (one change).
"""
