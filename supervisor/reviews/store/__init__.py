"""The review service's database, apart from the gate's: tables, their migrations, and queries.

Start with `tables`.
"""
