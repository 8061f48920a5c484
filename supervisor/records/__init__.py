"""Everything that must be on record: audit log, waiting requests, policy in force, kill switch.

Acknowledged records survive kill -9 (law 7). Nothing here decides an action.
Start with `audit` and `approval_queue`.
"""
