"""Index of rules that could contain another, to avoid comparing every pair.

Decides nothing: it only leaves out pairs that `rule_containment` would say no to, so that a
thousand rules are compared in a moment. It must never leave out a pair that it would say yes to.
"""

from collections.abc import Hashable, Iterator

from supervisor.core.policy.network_patterns import NetworkPattern
from supervisor.core.policy.rule_containment import Compiled, plain_name
from supervisor.core.shell import exec_containment
from supervisor.core.text.globs import Glob, has_wildcard


def own_key(rule: Compiled) -> Hashable:
    """Return a rule's key among possible containers: the most telling literal text in it.

    INVARIANT: where a rule contains another, its key is among the other's `keys_above`.
    """
    pattern = rule.pattern
    match rule.rule.category:
        case "exec":
            spelled = exec_containment.spelled_words(pattern)
            return ("exec", *(spelled[-1] if spelled else ()))
        case "filesystem":
            return ("filesystem", _longest(pattern))
        case "network":
            return (
                "network",
                *_host_key(pattern),
                "" if pattern.glob is None else _longest(pattern.glob),
            )
        case "git":
            return ("git", _start_of(pattern.words[-1]))
        case "review":
            return ("review",)
        case _:
            return (
                "packages",
                "" if pattern.item is None or "*" in pattern.item else pattern.item.casefold(),
            )


def keys_above(rule: Compiled) -> Iterator[Hashable]:
    """The keys of every rule that could contain this one, each once or more."""
    pattern = rule.pattern
    match rule.rule.category:
        case "exec":
            yield from (("exec", *key) for key in ((), *exec_containment.spelled_words(pattern)))
        case "filesystem":
            yield from (("filesystem", one) for one in _spelled_segments(pattern))
        case "network":
            segments = [""] if pattern.glob is None else _spelled_segments(pattern.glob)
            yield from (
                ("network", *host, one) for host in _hosts_above(pattern) for one in segments
            )
        case "git":
            yield from (
                ("git", start) for word in ("", *pattern.words) for start in _starts_of(word)
            )
        case "review":
            yield ("review",)
        case _:
            item = "" if pattern.item is None else pattern.item
            yield from (("packages", one.casefold()) for one in ("", item, plain_name(pattern)))


def _spelled_segments(glob: Glob) -> list[str]:
    """Return the segments without a wildcard, and nothing: a segment that one glob spells out,
    every glob in it spells out too."""
    return ["", *(one for one in glob.text.split("/") if not has_wildcard(one))]


def _longest(glob: Glob) -> str:
    # Of several the last: rules of one folder differ further below.
    return max(reversed(_spelled_segments(glob)), key=len)


def _host_key(pattern: NetworkPattern) -> tuple[Hashable, ...]:
    if pattern.network is not None:
        return (pattern.network.version, pattern.network.prefixlen, int(pattern.network[0]))
    return (pattern.host or pattern.suffix or "",)


def _hosts_above(pattern: NetworkPattern) -> Iterator[tuple[Hashable, ...]]:
    yield ("",)
    if pattern.network is not None:
        network = pattern.network
        yield from (
            _host_key(NetworkPattern(network=network.supernet(new_prefix=n)))
            for n in range(network.prefixlen)
        )
    yield _host_key(pattern)
    name = pattern.host or pattern.suffix or ""
    at = name.find(".")
    while at >= 0:
        yield (name[at:],)
        at = name.find(".", at + 1)


def _start_of(word: str) -> str:
    """A word without a wildcard, or the folders that one with a wildcard spells out."""
    literal, star, _ = word.partition("*")
    return literal[: literal.rfind("/") + 1] if star else literal


def _starts_of(word: str) -> Iterator[str]:
    literal, star, _ = word.partition("*")
    if not star:
        yield literal
    yield from (literal[: at + 1] for at, char in enumerate(literal) if char == "/")
    yield ""
