"""Bitbucket's tools on the agent's `/mcp`, where the sandbox has no token.

A read is asked as a call of an MCP server is; a comment is asked as an act on its repository.
"""

import secrets
from functools import partial
from typing import Any

import msgspec

from supervisor.channels.mcp_servers import OwnServer
from supervisor.core.actions import McpCall
from supervisor.core.approvals import Request
from supervisor.core.mcp_calls import ServerTool, ToolList, arguments_of, spelled
from supervisor.parts import Parts
from supervisor.reviews.bitbucket_acts import ask_to_comment
from supervisor.reviews.forges.bitbucket import Bitbucket
from supervisor.reviews.forges.bitbucket_tools import (
    TOOLS,
    WRITES,
    BitbucketReads,
    arguments_for,
    described,
    repository_among,
)
from supervisor.reviews.service import ReviewService


def tools_for_agents(parts: Parts, service: ReviewService, client: Bitbucket) -> OwnServer:
    """Return the tools, for sessions of this supervisor."""

    def reads_in(session_id: str) -> BitbucketReads:
        remotes = parts.sessions.get(session_id).remotes
        return BitbucketReads(client, repository_among(remotes, client.pages))

    async def call(session_id: str, action: McpCall) -> str:
        data = arguments_for(action.tool, arguments_of(action))
        found = await reads_in(session_id).read(data, review_id=secrets.token_hex(8))
        return msgspec.json.encode(found).decode()

    async def ask(tool: str, session_id: str, arguments: dict[str, Any]) -> Request:
        data = arguments_for(tool, arguments)
        name = reads_in(session_id).repository(data)
        why = f"the agent of session {session_id} asks"
        return await ask_to_comment(service, parts.gate, name, data, why)

    listed = [(name, *described(name)) for name in sorted(TOOLS)]
    return OwnServer(
        ToolList(
            tools=tuple(
                ServerTool(name=name, description=said, schema=spelled(schema))
                for name, said, schema in listed
            )
        ),
        call,
        {name: partial(ask, name) for name in WRITES},
    )
