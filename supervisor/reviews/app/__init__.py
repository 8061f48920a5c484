"""The review service put together from a supervisor's parts, and what the doctor checks of it.

Start with `reviewing`.
"""
