"""Inspected requests. The only package that imports mitmproxy.

Every hook refuses first and lifts the refusal on an explicit allow (law 3). Start with `inspector`
(put together) and `guard` (asks and lifts).
"""
