"""The operator's and the agent's HTTP servers: pages, JSON API, MCP. Only it and `reviews.pages`
import litestar.

They share no app, no socket, no credential and no route. The agent's routes never import
`decisions`, so none of them can lead to an answer. Start with `app`.
"""
