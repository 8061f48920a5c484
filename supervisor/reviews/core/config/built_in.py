"""Jobs that every repository can schedule by name (`commandRef`): a prompt, and where it may write.

A file's own command of the same id comes first.
"""

from supervisor.reviews.core.config.shapes import CommandSpec, GlobSet

_DOCS_DRIFT = """\
Compare what the documentation says with what the code does: names of functions, options, settings, files and commands, \
examples, defaults, and what is described that isn't there any more. Start with what changed in the last weeks.

Correct the documentation, never the code. Change only sentences and examples that are wrong, in the words and form of \
their page. Where you can't tell what is meant, leave it. Where nothing is wrong, change nothing.

Report what you corrected and by which place of the code you know it, one line each.
"""  # noqa: E501
# The package managers do this one, and a model what it breaks.
UPDATES = "dependency-updates"
COMMANDS = {
    "docs-drift": CommandSpec(id="docs-drift", title="Docs drift", prompt=_DOCS_DRIFT),
    UPDATES: CommandSpec(id=UPDATES, title="Dependency updates", prompt="Update dependencies"),
}
SCOPES = {
    "docs-drift": GlobSet(include=("docs/**", "**/*.md", "**/*.rst", "**/*.adoc")),
}
