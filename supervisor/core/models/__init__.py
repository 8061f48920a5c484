"""Calls of models: which request is one, what it may cost at most, and what it did cost.

Start with `model_calls`, then `spend`.
"""
