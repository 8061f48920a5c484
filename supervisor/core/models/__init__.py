"""Calls of models: which request is one, its bound and its cost.

Start with `model_calls`, then `spend`.
"""
