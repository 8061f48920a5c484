"""List the person's files that are reloaded on save, with the reader of each.

Part of the composition root, beside `app`.
"""

from collections.abc import Awaitable, Callable

from supervisor.app.file_watch import FileWatch, WatchedFiles
from supervisor.app.session_parts import SessionSetup
from supervisor.ledger.spending import Spending, read_prices
from supervisor.records.policy_sets import PolicySets
from supervisor.sessions.credentials import NamedSecrets
from supervisor.settings import Settings


def watched(
    settings: Settings,
    policies: PolicySets,
    spending: Spending,
    named_secrets: NamedSecrets,
    load_secrets: Callable[[], Awaitable[None]],
    surroundings: SessionSetup,
) -> FileWatch:
    """Policies, prices, credentials."""

    async def look_at_policies() -> None:
        # They look at their files by themselves, also before every verdict: what a person saved
        # holds for the next one.
        _ = policies.banner

    async def use_prices() -> None:
        spending.use_prices(read_prices(settings.prices_file))

    async def use_credentials() -> None:
        await load_secrets()
        surroundings.credentials_changed()

    kinds = (
        WatchedFiles(
            "policies",
            lambda: [path for one in policies.all() for path in (one.file, one.saved_file)],
            look_at_policies,
        ),
        WatchedFiles("prices", lambda: [settings.prices_file], use_prices),
        WatchedFiles(
            "credentials",
            lambda: [settings.bindings_file, *named_secrets.value_files],
            use_credentials,
        ),
    )
    return FileWatch(kinds, busy=settings.data_dir)
