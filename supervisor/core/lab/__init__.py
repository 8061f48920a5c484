"""Answers about a policy: explain, test, lint, replay, learn, import.

Decides no live action. Start with `check` (one JSON line in, one answer out) and `explain`.
"""
