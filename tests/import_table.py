"""Which package of the supervisor may import which others; `test_architecture` holds it."""

# Package -> the packages it may import. `core` in a row means its top level, `core.*` every package
# of core.
BASE = {"errors", "settings", "base"}
GIT = BASE | {"git"}
GATE = GIT | {"core.*", "gate"}
CHANNELS = GATE | {
    *{"store", "records", "ledger", "sandbox", "channels", "network", "workspace.*"},
}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "settings": {"errors", "base", "core.text"},
    "base": {"errors"},
    "core.text": {"errors"},
    "core": {"errors", "core.text"},
    "core.secrets": {"errors", "core", "core.text"},
    "core.shell": {"errors", "core", "core.text"},
    "core.packages": {"errors", "core", "core.text"},
    "core.quarantine": {"errors", "core", "core.text"},
    "core.policy": {"errors", "core", "core.text", "core.secrets", "core.shell", "core.packages"},
    "core.files": {"errors", "core", "core.text", "core.secrets", "core.policy"},
    "core.git": {"errors", "core", "core.text", "core.secrets", "core.policy", "core.files"},
    "core.agents": {"errors", "core", "core.text"},
    "core.models": {"errors", "core", "core.text"},
    "core.network": {"errors", "core", "core.text", "core.models"},
    "core.lab": {
        *{"errors", "core", "core.text", "core.secrets", "core.shell"},
        *{"core.packages", "core.policy"},
    },
    "git": BASE | {"core.text"},
    "store": BASE | {"core.*"},
    "store.migrations": {"store"},
    "records": BASE | {"core.*", "store"},
    "gate": BASE | {"core.*", "records"},
    "ledger": BASE | {"core.*", "store", "records"},
    "sandbox": GIT | {"core.*"},
    "channels": GATE | {"sandbox"},
    "network": GATE | {"ledger"},
    "workspace.disk": GIT | {"core.*"},
    "workspace.trees": BASE | {"core.*", "workspace.disk"},
    "workspace.copy": GIT | {"core.*", "sandbox", "workspace.disk", "workspace.trees"},
    "workspace.apply": GATE | {"workspace.disk", "workspace.trees"},
    "workspace.compare": GATE | {"workspace.disk", "workspace.trees", "workspace.apply"},
    "workspace.incoming": GATE | {"workspace.disk", "workspace.trees", "workspace.apply"},
    "workspace.undo": GATE | {"workspace.disk", "workspace.trees", "workspace.apply"},
    "workspace": GATE | {"sandbox", "workspace.*"},
    "sessions": CHANNELS,
    # Every part of one supervisor: below the doors, which are given it.
    "parts": CHANNELS | {"sessions"},
    "egress.protocols": BASE | {"core.*", "egress.loop"},
    "egress.loop": BASE | {"core.*"},
    "egress.admission": BASE | {"core.*", "egress.loop", "egress.protocols"},
    "egress.mitm": BASE | {"core.*", "egress.loop", "egress.protocols", "egress.admission"},
    "egress": BASE | {"core.*", "egress.*"},
    "server.common": GATE | {"records", "ledger", "parts"},
    # The agent's routes ask and wait. They never import what answers.
    "server.agent": GATE | {"parts", "server.common", "workspace.incoming"},
    "server.operator": (GATE | {"records", "sessions", "workspace.*", "parts", "server.common"}),
    "server.operator.pages": (
        GATE
        | {
            "store",
            "records",
            "ledger",
            "sessions",
            "network",
            "workspace.*",
            "parts",
            "server.common",
            "server.operator",
        }
    ),
    "server": {"settings", "parts", "server.*"},
    # The review service: a product of its own on the gate's API.
    "reviews.core": {"errors", "core", "core.text", "core.secrets", "reviews.core.config"},
    "reviews.core.config": {"errors", "core.text"},
    "reviews.store": BASE | {"core.*", "store", "reviews.core.*"},
    "reviews.store.migrations": {"reviews.store"},
    "reviews.forges": BASE | {"core.*", "reviews.core.*"},
    "reviews.queue": BASE,
    # It holds what `app` gives it; a channel, as those above are.
    "reviews": (
        GATE
        | {"records", "store"}
        | {"reviews.core.*", "reviews.store", "reviews.forges", "reviews.queue"}
    ),
    "reviews.demo": GIT | {"sessions"},
    "reviews.pages": (
        GATE
        | {"parts", "server.common", "server.operator.*"}
        | {"reviews", "reviews.core.*", "reviews.store"}
    ),
    "reviews.app": (
        GATE
        | {"store", "sandbox", "sessions", "network", "workspace", "parts", "server.common"}
        | {"channels"}
        | {"reviews", "reviews.core.*", "reviews.store", "reviews.forges", "reviews.queue"}
        | {"reviews.pages"}
    ),
    "reviews.cli": GIT | {"core.*", "cli.common", "reviews.core.*", "reviews.forges"},
    "app": (GATE | {"records", "sandbox", "sessions", "parts", "reviews.pages", "server.*"}),
    "cli.common": BASE | {"core.*"},
    "cli.lab": BASE | {"core.*", "workspace.disk"},
    # Only `foreground` and `undo_verb` start a supervisor; every other verb calls one.
    "cli": (
        BASE
        | {
            "core.*",
            "records",
            "sandbox",
            "sessions",
            "network",
            "parts",
            "server.*",
            "app",
            "cli.*",
            "reviews.app",
            "reviews.cli",
            "reviews.demo",
        }
    ),
}
