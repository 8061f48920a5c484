"""Assembly of the review service from a supervisor's parts, and its doctor checks.

Start with `reviewing`.
"""
