"""Known services: their hosts, headers and variables, and how git sends their credentials."""

from typing import Literal, NamedTuple


class Preset(NamedTuple):
    """A known service. `asks`: its hosts are those that this program is set up with.
    `git_user`: git sends it as a password, with this name, or where its value begins so with
    another (`git_users`). `other_headers` and `query_names` are where it takes keys, too (as
    `Credential` has them): by its documentation of REST authentication, and what that calls
    deprecated.
    """

    hosts: tuple[str, ...]
    headers: tuple[str, ...]
    variables: tuple[str, ...]
    asks: Literal["", "pip", "npm"] = ""
    git_user: str = ""
    git_users: tuple[tuple[str, str], ...] = ()
    git_host: str = ""
    signs: bool = False
    other_headers: tuple[str, ...] = ()
    query_names: tuple[str, ...] = ()


PRESETS: dict[str, Preset] = {
    "anthropic": Preset(
        ("api.anthropic.com",), ("x-api-key", "authorization"), ("ANTHROPIC_API_KEY",)
    ),
    # Browsers, which can't set headers, say a key among the protocols of a WebSocket.
    "openai": Preset(
        ("api.openai.com",),
        ("authorization",),
        ("OPENAI_API_KEY", "CODEX_API_KEY"),
        other_headers=("sec-websocket-protocol: openai-insecure-api-key.",),
    ),
    # Its endpoint for Anthropic's clients takes what they send.
    "openrouter": Preset(
        ("openrouter.ai",), ("authorization", "x-api-key"), ("OPENROUTER_API_KEY",)
    ),
    "github": Preset(
        ("api.github.com", "uploads.github.com", "github.com"),
        ("authorization",),
        ("GH_TOKEN", "GITHUB_TOKEN"),
        git_user="x-access-token",
        git_host="github.com",
        query_names=("access_token",),
    ),
    "gitlab": Preset(
        ("gitlab.com",),
        ("private-token", "authorization"),
        ("GITLAB_TOKEN",),
        git_user="oauth2",
        git_host="gitlab.com",
        # `bearer_token` is Doorkeeper's, by which it reads personal access tokens, too; the header
        # of NuGet uploads packages.
        other_headers=(
            "job-token",
            "deploy-token",
            "x-gitlab-static-object-token",
            "x-nuget-apikey",
        ),
        query_names=(
            "private_token",
            "access_token",
            "bearer_token",
            "job_token",
            "feed_token",
            "rss_token",
            "token",
        ),
    ),
    "bitbucket": Preset(
        ("api.bitbucket.org", "bitbucket.org"),
        ("authorization",),
        ("BITBUCKET_TOKEN",),
        # Access tokens of a repository, project or workspace begin with ATCT, API tokens of a
        # person with ATAT.
        git_user="x-token-auth",
        git_users=(("ATAT", "x-bitbucket-api-token-auth"),),
        git_host="bitbucket.org",
        query_names=("access_token", "jwt"),
    ),
    "pypi": Preset(
        (),
        ("authorization",),
        ("TWINE_PASSWORD", "UV_PUBLISH_TOKEN"),
        asks="pip",
        git_user="__token__",
    ),
    "npm": Preset((), ("authorization",), ("NPM_TOKEN",), asks="npm"),
    "aws": Preset(
        (), ("authorization",), ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), signs=True
    ),
}
