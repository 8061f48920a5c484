"""The operator's pages: Jinja2 and htmx. Each handler parses, calls one function, renders.

Start with `pages`.
"""
