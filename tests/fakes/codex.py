"""How the real Codex CLI is run against the local Responses server. It is the one on the PATH (`npm
install @openai/codex`); nothing is downloaded.

Separate from the tests, because several run the same command line.
"""

import shutil

# One that has plain tools: newer ones write programs that call them.
MODEL = "gpt-5.4"
MISSING = "" if shutil.which("codex") else "`codex` isn't on the PATH"


def codex_command(*settings: str) -> tuple[str, ...]:
    """One run without a terminal. Permissions are the sandbox's business, so its own prompts and
    its own sandbox are off."""
    options = [word for setting in settings for word in ("-c", setting)]
    return (
        "codex",
        "exec",
        "--dangerously-bypass-approvals-and-sandbox",
        "-m",
        MODEL,
        *options,
        "Please go on.",
    )


def own_provider(url: str) -> tuple[str, ...]:
    """The settings of a gateway that a user has beside OpenAI, with its key where the sandbox
    has a placeholder. It would try again for a while."""
    facts = (
        f'name = "local", base_url = "{url}/v1", env_key = "OPENAI_API_KEY", request_max_retries ='
        " 0, stream_max_retries = 0"
    )
    return (f"model_providers.local = {{{facts}}}", 'model_provider = "local"')
