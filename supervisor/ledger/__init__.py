"""Spending and traffic of sessions, and whether one more call or request fits the budget.

Start with `spending` (money and tokens) and `traffic` (requests and bytes).
"""
