"""The operator's pages of Jinja2 and htmx, and their routes.

Each handler parses, calls one function, renders. Start with `pages`.
"""
