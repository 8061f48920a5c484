"""The operator's pages of Jinja2 and htmx, and the routes of what stands on them. Each handler
parses, calls one function, renders.

Start with `pages`.
"""
