"""The errors that a person or an agent can be shown.

A class exists only where somebody catches it. Each carries the three parts of a good message:
what went wrong and where (`message`), and what to do (`remedy`). Two renderers show them:
`cli.main` as one line on standard error, `server.app` as the JSON body `{error, why, remedy,
rule, request_id}`.
"""


class GatehouseError(Exception):
    """An expected failure. `exit_code` is the CLI's: 1 user mistake, 2 refused; a bug (any other
    exception) is 3.

    A message may name a path whose bytes aren't UTF-8: they are escaped, so that it can be
    stored and sent wherever it goes.
    """

    exit_code = 1
    http_status = 400

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message.encode("utf-8", "backslashreplace").decode()
        self.remedy = remedy.encode("utf-8", "backslashreplace").decode()
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class UserError(GatehouseError):
    """Something that the person typed or configured is wrong."""


class PolicyError(UserError):
    """A policy or a rule that can't be used. `message` starts with `file:line:` where there is a
    file."""


class RefusedError(GatehouseError):
    """The gate said no, or nobody said yes. `rule` and `request_id` travel with it (law 5)."""

    exit_code = 2
    http_status = 403

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        rule: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message, remedy)
        self.rule = rule
        self.request_id = request_id


class NotFoundError(GatehouseError):
    """No such session, request or rule, or it belongs to somebody else: the answer is the same."""

    http_status = 404


class ChangedError(UserError):
    """What would be answered isn't what was shown, or the answer doesn't say what was. Nothing
    happened."""

    http_status = 409

    @classmethod
    def unsaid(cls, where: str) -> "ChangedError":
        """To an answer that doesn't say what was shown; `where` one finds what to send."""
        return cls("the answer doesn't say what was shown, so it answers nothing", where)

    @classmethod
    def other(cls) -> "ChangedError":
        """To an answer to another version of a request than there is."""
        return cls(
            "this is not the request that was shown: it has changed",
            "look at it again, then answer",
        )

    @classmethod
    def already(cls, status: str) -> "ChangedError":
        """To an answer to what doesn't wait any more."""
        return cls(f"this request was already {status}", "reload the inbox, or show it again")

    @classmethod
    def several(cls) -> "ChangedError":
        """To an answer for several, of which one isn't what was shown."""
        return cls(
            "what waits is not what was shown: a request was answered, or the agent changed it"
            " again",
            "look at what waits now and answer again",
        )


class SandboxError(GatehouseError):
    """The sandbox can't be made as strong as asked. Nothing runs then."""

    http_status = 500


class StorageError(GatehouseError):
    """The audit log or the database can't be written. Nothing is allowed until it can be."""

    http_status = 503
