"""Settings by which git sends the placeholders of credentials to their hosts."""

import base64
import itertools

from supervisor.core.network.credentials import Binding
from supervisor.core.text import globs


def git_settings(bindings: dict[str, Binding]) -> dict[str, str]:
    """Return settings for git that send the placeholders (the keys) to their hosts, as variables of
    the environment (git-config(1))."""
    found: list[tuple[str, str]] = []
    for placeholder, binding in bindings.items():
        basic = base64.b64encode(f"{binding.git_user}:{placeholder}".encode()).decode()
        places = [
            f"{host}{prefix}" for host in binding.git_hosts for prefix in _prefixes(binding.paths)
        ]
        found += [
            (f"http.https://{place}.extraHeader", f"Authorization: Basic {basic}")
            for place in places
        ]
    if not found:
        return {}
    made = {"GIT_CONFIG_COUNT": str(len(found))}
    for number, (key, value) in enumerate(found):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made


def _prefixes(paths: tuple[str, ...]) -> list[str]:
    """Return the folders that paths lie in, up to their first wildcard. INVARIANT: none is below
    another: git sends the header of each that fits."""
    folders = []
    for path in paths or ("/**",):
        kept = itertools.takewhile(
            lambda segment: not globs.has_wildcard(segment), path[1:].split("/")
        )
        folders.append("/".join(["", *filter(None, kept), ""]))
    return [
        one
        for one in dict.fromkeys(folders)
        if not any(one != other and one.startswith(other) for other in folders)
    ]
