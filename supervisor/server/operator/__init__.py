"""The operator's functions, live state and JSON API; `pages/` has the pages.

Start with `decisions` and `operator_api`.
"""
