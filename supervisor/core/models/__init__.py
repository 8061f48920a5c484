"""Model calls: recognise them, bound their cost, and charge it.

Start with `model_calls`, then `spend`.
"""
