"""Quarantine: what an agent may do that reads by reference only, and what stands of its answer.

Start with `quarantine`, then `references` and `quarantine_answers`.
"""
