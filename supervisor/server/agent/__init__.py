"""The agent's door: routes to ask and to wait, as JSON and as MCP tools. None answers a request.

Start with `agent_calls`.
"""
