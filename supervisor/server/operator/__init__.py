"""What an operator does and sees, as functions; live state; the JSON API. `pages/` has the pages.

Start with `decisions` and `operator_api`.
"""
