"""What an operator does and sees, as functions; live state. `routes/` has pages and JSON API.

Start with `decisions`.
"""
