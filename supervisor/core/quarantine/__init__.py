"""Quarantine: what an agent that reads only by reference may do, and which of its answers count.

Start with `quarantine`, then `references` and `quarantine_answers`.
"""
