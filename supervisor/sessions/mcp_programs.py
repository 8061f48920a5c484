"""Which MCP servers the operator named, and what each needs of this machine."""

from pathlib import Path

from supervisor.base import plain_files
from supervisor.channels.mcp_servers import own_rules
from supervisor.core.mcp_servers_file import McpServer, parse_mcp_servers
from supervisor.errors import UserError
from supervisor.sandbox.arguments import PATH
from supervisor.sandbox.programs import find_program, is_too_wide


def read_servers(file: Path) -> dict[str, McpServer]:
    """Return the servers that the file names, none where there is no file. `UserError` where it
    can't be used."""
    text = plain_files.told_text(file, "what agents may call", "GATEHOUSE_MCP_SERVERS")
    found = {} if text is None else parse_mcp_servers(text, str(file))
    for name, server in found.items():
        try:
            own_rules(server)
        except UserError as error:
            raise UserError(f"{file}: `{name}`: {error.message}", error.remedy) from None
    return found


def shown_of_server(server: McpServer) -> tuple[tuple[Path, str], ...]:
    """Return what an MCP server sees of this machine, read-only, besides the system. `UserError`
    where something of it isn't there."""
    binds = tuple((Path(one), one) for one in server.folders)
    for folder, _ in binds:
        if not folder.exists():
            raise UserError(f"`{folder}` isn't there", "name folders that are")
        if is_too_wide(folder, Path.home()):
            raise UserError(f"`{folder}` is a whole home, or above one", "name a folder in it")
    if server.command:
        binds += find_program(server.command[0], PATH, Path.home())[1]
    return binds
