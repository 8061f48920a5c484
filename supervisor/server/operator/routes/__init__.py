"""The operator's routes: the JSON API, and pages of Jinja2 and htmx. Each handler parses, calls one
function, renders.

Start with `operator_api` and `pages`.
"""
