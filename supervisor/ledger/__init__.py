"""Spending and traffic of sessions, held to their budgets.

Start with `spending` (money and tokens) and `traffic` (requests and bytes).
"""
