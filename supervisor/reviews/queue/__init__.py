"""Queues of runs: a message is a run's id, and a lost, doubled or late one does no harm.

Start with `base`.
"""
