"""Rule containment: whether one rule already covers another.

Compares two patterns for `lint`; it never tries them out. It is separate from the categories'
judges because it asks about all actions at once. It must never say yes where some action could show
otherwise: a rule would be removed that somebody relied on. Where it can't tell, it says no.

INVARIANT: where `contains(outer, inner)` holds and `outer` is always in force, taking `inner` away
changes no decision. The functions follow the two ways to match of each judge: *covers* (narrow) for
allow, *touches* (broad) for ask and deny; a stricter outer rule must touch whatever the inner one
covers.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from supervisor.core.actions import Packages
from supervisor.core.packages.package_commands import items_of
from supervisor.core.policy import git_rules, network_patterns, package_rules, review_rules
from supervisor.core.policy.file_rules import tidy
from supervisor.core.policy.git_refs import REACHES, READS, harmless
from supervisor.core.policy.git_rules import GitPattern
from supervisor.core.policy.network_patterns import WEB_PORTS, NetworkPattern, is_nowhere_public
from supervisor.core.policy.package_rules import PackagePattern
from supervisor.core.shell import exec_containment, exec_patterns
from supervisor.core.text.globs import Glob
from supervisor.core.text.paths import fold
from supervisor.core.text.urls import DEFAULT_PORTS
from supervisor.core.text.words import fits, is_star
from supervisor.core.verdicts import STRICTNESS, Rule

# Stand-in for a wildcard of the inner pattern: a character that only a wildcard of the outer one
# matches.
_ANYTHING = "\x00"
_NAMESPACES = ("refs/", "tags/", "heads/", "remotes/", "+")
type IsProtected = Callable[[str], object]


class Compiled(NamedTuple):
    """A rule with its pattern, compiled for its category."""

    rule: Rule
    pattern: Any

    @property
    def is_allow(self) -> bool:
        """Return whether it matches narrowly."""
        return self.rule.effect == "allow"

    @property
    def is_unconditional(self) -> bool:
        """Return whether it is in force always, everywhere and any number of times."""
        rule = self.rule
        return (
            rule.expires_at is None
            and rule.session is None
            and not rule.until_session_ends
            and rule.uses is None
        )


def compiled(rule: Rule) -> Compiled:
    """Return the rule with its pattern; a policy holds only rules whose pattern can be read."""
    match rule.category:
        case "exec":
            return Compiled(rule, exec_patterns.compile_pattern(rule.pattern))
        case "filesystem":
            # A category alone is everything, not only the first level.
            return Compiled(rule, Glob("**" if rule.pattern == "*" else tidy(rule.pattern)))
        case "network":
            return Compiled(rule, network_patterns.parse(rule.pattern))
        case "git":
            return Compiled(rule, git_rules.compile_pattern(rule.pattern))
        case "review":
            return Compiled(rule, review_rules.compile_pattern(rule.pattern))
        case _:
            return Compiled(rule, package_rules.compile_pattern(rule.pattern))


def contains(outer: Compiled, inner: Compiled, is_protected: IsProtected) -> bool:
    """Return whether `outer`, while it is in force, makes `inner` say nothing new. False for an
    `outer` that is less strict.

    `is_protected` tells of a path whether it has a protected name: then a rule that spells it
    out lifts something.
    """
    if (
        outer.rule.category != inner.rule.category
        or STRICTNESS[outer.rule.effect] < STRICTNESS[inner.rule.effect]
    ):
        return False
    # The outer rule's exceptions don't matter where each has a counterpart in the inner one.
    if not set(outer.rule.exceptions) <= (
        set(inner.rule.exceptions) if outer.is_allow == inner.is_allow else set()
    ):
        return False
    match outer.rule.category:
        case "exec":
            return _exec(outer, inner)
        case "filesystem":
            return _filesystem(outer, inner, is_protected)
        case "network":
            return _network(outer, inner)
        case "git":
            return _git(outer, inner)
        case "review":
            return outer.is_allow == inner.is_allow and review_rules.within(
                inner.pattern, outer.pattern, is_allow=outer.is_allow
            )
        case _:
            return _packages(outer, inner)


def _exec(outer: Compiled, inner: Compiled) -> bool:
    if outer.is_allow:
        return exec_containment.allow_in_allow(outer.pattern, inner.pattern)
    if inner.is_allow:
        return exec_containment.allow_in_strict(outer.pattern, inner.pattern)
    return exec_containment.strict_in_strict(outer.pattern, inner.pattern)


# -- paths ----------------------------------------------------------------------------------------


def _filesystem(outer: Compiled, inner: Compiled, is_protected: IsProtected) -> bool:
    wide: Glob = outer.pattern
    narrow: Glob = inner.pattern
    if not path_in_path(wide.text, narrow.text):
        return False
    if not inner.is_allow and not path_in_path(fold(wide.text), fold(narrow.text)):
        return False
    # A rule that spells a protected name out lifts its protection; a wildcard doesn't. A deny rule
    # lifts nothing, and wins.
    return (
        outer.rule.effect == "deny"
        or narrow.literal in (None, wide.literal)
        or not is_protected(narrow.literal)
    )


def path_in_path(wide: str, narrow: str) -> bool:
    """Return whether every path that the glob `narrow` matches is matched by `wide`."""
    outer, inner = wide.split("/"), narrow.split("/")
    if outer[-1] != "**" and not _segment_in(outer[-1], inner[-1]):
        # Most pairs end differently.
        return False
    return _segments_in(outer, inner)


@lru_cache(maxsize=16384)
def _glob(segment: str) -> Glob:
    return Glob(segment)


def _segments_in(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """From the ends to the front: `below[j]` says whether the rest of `wide` contains
    `narrow[j:]`."""
    below = [False] * len(narrow) + [True]
    for one in reversed(wide):
        row = [False] * len(narrow) + [one == "**" and below[-1]]
        for j in range(len(narrow) - 1, -1, -1):
            if one == "**":
                row[j] = below[j] or row[j + 1]
            else:
                row[j] = below[j + 1] and narrow[j] != "**" and _segment_in(one, narrow[j])
        below = row
    return below[0]


def _segment_in(wide: str, narrow: str) -> bool:
    if wide in (narrow, "*"):
        return True
    literal = _glob(narrow).literal
    if literal is not None:
        return _glob(wide).matches(literal)
    if _glob(wide).literal is not None or any(char in wide + narrow for char in "?["):
        return False
    return _glob(wide).matches(narrow.replace("*", _ANYTHING))


# -- hosts and URLs -------------------------------------------------------------------------------


def _network(outer: Compiled, inner: Compiled) -> bool:
    wide: NetworkPattern = outer.pattern
    narrow: NetworkPattern = inner.pattern
    if not _hosts_in(wide, narrow, broad=not outer.is_allow):
        return False
    # An allow rule that names private addresses lets them be dialled at all: without it they are
    # denied, not asked.
    if inner.is_allow and narrow.network is not None and is_nowhere_public(narrow.network):
        names_them = outer.is_allow and wide.network is not None and is_nowhere_public(wide.network)
        if outer.rule.effect != "deny" and not names_them:
            return False
    if not _ports_in(wide, narrow, outer, inner):
        return False
    if wide.glob is None:
        return True
    # A URL rule that allows also lets the connection be opened, which a stricter URL rule doesn't
    # forbid.
    return (
        narrow.glob is not None
        and outer.is_allow == inner.is_allow
        and _requests_in(wide, narrow, inner)
    )


def _hosts_in(wide: NetworkPattern, narrow: NetworkPattern, *, broad: bool) -> bool:
    if wide.is_every_host:
        return broad
    if narrow.host is not None:
        return wide.host == narrow.host or (
            wide.suffix is not None and narrow.host.endswith(wide.suffix)
        )
    if narrow.suffix is not None:
        return wide.suffix is not None and narrow.suffix.endswith(wide.suffix)
    if (
        narrow.network is None
        or wide.network is None
        or narrow.network.version != wide.network.version
    ):
        return False
    return narrow.network[0] in wide.network and narrow.network[-1] in wide.network


def _ports_in(
    wide: NetworkPattern, narrow: NetworkPattern, outer: Compiled, inner: Compiled
) -> bool:
    if not outer.is_allow and wide.port is None:
        return True
    if not inner.is_allow:
        return narrow.port == wide.port
    return _own_ports(narrow) <= _own_ports(wide)


def _own_ports(pattern: NetworkPattern) -> frozenset[int]:
    """Return the ports of an allow rule (and of any rule that names one)."""
    if pattern.port is not None:
        return frozenset({pattern.port})
    default = DEFAULT_PORTS.get(pattern.scheme or "")
    return frozenset({default}) if default else WEB_PORTS


def _requests_in(wide: NetworkPattern, narrow: NetworkPattern, inner: Compiled) -> bool:
    if wide.scheme not in (None, narrow.scheme) or narrow.glob is None or wide.glob is None:
        return False
    if wide.methods is not None and not (
        narrow.methods is not None and narrow.methods <= wide.methods
    ):
        return False
    if not path_in_path(wide.glob.text, narrow.glob.text):
        return False
    return inner.is_allow or (
        wide.folded is not None
        and narrow.folded is not None
        and path_in_path(wide.folded.text, narrow.folded.text)
    )


# -- git ------------------------------------------------------------------------------------------


def _git(outer: Compiled, inner: Compiled) -> bool:
    wide: GitPattern = outer.pattern
    narrow: GitPattern = inner.pattern
    if wide == narrow and outer.is_allow == inner.is_allow:
        return True
    special, mine = _special(wide), _special(narrow)
    if outer.is_allow:
        # The rest of a bare rule's scope has no name here.
        return (
            special == mine
            and not (wide.is_bare or narrow.is_bare)
            and _subjects_in(wide.words, narrow.words, mine)
        )
    if not special <= mine or (narrow.is_bare and not wide.is_bare):
        return False
    if (
        not inner.is_allow
        and git_rules.names_a_branch(narrow)
        and not git_rules.names_a_branch(wide)
    ):
        return False
    return wide.is_bare or _called_in(wide.words, narrow.words, is_allow=inner.is_allow)


def _special(pattern: GitPattern) -> frozenset[str]:
    """Return the options without which a rule says nothing; where a wildcard leaves the operation
    open, those of any."""
    words = pattern.words
    return pattern.options - harmless(
        "push" if len(words) == 1 and words[0] not in git_rules.OPERATIONS else words[0]
    )


def _subjects_in(wide: Sequence[str], narrow: Sequence[str], options: frozenset[str]) -> bool:
    """For two allow rules: an action has several subjects, and a rule names one."""
    if len(wide) == len(narrow):
        return all(map(_word_in, wide, narrow))
    if len(narrow) != 3:
        return False
    operation, remote, ref = narrow
    if len(wide) == 1:
        # The bare branch is a subject of a plain push only, and not where it is the name of an
        # operation.
        is_plain = (
            operation == "push" and not options and ":" not in ref and ref not in ("HEAD", "@")
        )
        return (
            is_plain
            and "/" in ref.partition("*")[0]
            and not ref.startswith(_NAMESPACES)
            and _word_in(wide[0], ref)
        )
    if operation not in REACHES or not _word_in(wide[0], operation):
        return False
    return _word_in(wide[1], ref) or (operation in READS and _word_in(wide[1], remote))


def _word_in(wide: str, narrow: str) -> bool:
    """Return whether a word of a pattern covers all that another one covers: never into a mapping
    or another namespace."""
    if wide == narrow:
        return True
    if "*" not in narrow:
        return git_rules.word_covers(wide, narrow)
    if ":" in wide + narrow or narrow.startswith(_NAMESPACES) or wide.startswith(_NAMESPACES):
        return False
    return _star_in(wide, narrow)


def _star_in(wide: str, narrow: str) -> bool:
    """The same, whatever the ref."""
    return fits(wide, narrow.replace("*", _ANYTHING))


def _called_in(wide: Sequence[str], narrow: Sequence[str], *, is_allow: bool) -> bool:
    """For a deny or ask rule: it looks at a ref's name, however that is spelled. `is_allow`: the
    inner rule only covers."""
    first = _star_in(wide[0], narrow[0])
    if len(wide) == 1:
        # The rule is about an operation, or about a branch.
        is_branch = (
            len(narrow) == 3
            and narrow[0] == "push"
            and not is_star(narrow[2])
            and _star_in(wide[0], narrow[2])
        )
        return is_branch or first
    if not first or len(wide) > len(narrow):
        return False
    if len(wide) == len(narrow):
        return all(map(_star_in, wide[1:], narrow[1:]))
    if len(wide) != 2 or len(narrow) != 3:
        return False
    is_ref = is_star(wide[1]) or (not is_star(narrow[2]) and _star_in(wide[1], narrow[2]))
    return is_ref or (is_allow and narrow[0] in REACHES and _star_in(wide[1], narrow[1]))


# -- packages -------------------------------------------------------------------------------------


def _packages(outer: Compiled, inner: Compiled) -> bool:
    wide: PackagePattern = outer.pattern
    narrow: PackagePattern = inner.pattern
    if wide.is_bare:
        return not outer.is_allow
    if (
        narrow.is_bare
        or not _star_in(wide.manager, narrow.manager)
        or not wide.options <= narrow.options
    ):
        return False
    if wide.operation is not None and not (
        narrow.operation is not None and _star_in(wide.operation, narrow.operation)
    ):
        return False
    if outer.is_allow:
        return _item_in(wide, narrow)
    if wide.item is None or is_star(wide.item):
        return True
    if narrow.item is None:
        return False
    return any(
        _star_in(wide.item.casefold(), one.casefold())
        for one in (narrow.item, plain_name(narrow))
        if one
    )


def _item_in(wide: PackagePattern, narrow: PackagePattern) -> bool:
    """For two allow rules: a package, a file of requirements, and nothing are three things."""
    if wide.item is None or narrow.item is None:
        return wide.item is None and narrow.item is None
    if wide.operation is None:
        if narrow.file:
            return False
        return any(_star_in(wide.item, one) for one in (narrow.item, plain_name(narrow)) if one)
    return wide.file == narrow.file and _star_in(wide.item, narrow.item)


def plain_name(pattern: PackagePattern) -> str:
    """Return the package's name without its version, empty where it isn't spelled out."""
    if (
        pattern.item is None
        or "*" in pattern.item + pattern.manager
        or pattern.file
        or pattern.operation is None
    ):
        return ""
    try:
        (item,) = items_of(
            Packages(manager=pattern.manager, operation=pattern.operation, names=(pattern.item,))
        )
    except ValueError:
        return ""
    return "" if item.origin else item.name
