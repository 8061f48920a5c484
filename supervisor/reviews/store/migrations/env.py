"""Alembic's entry point: migrates the connection that `engine.migrate` passes."""

from alembic import context

from supervisor.reviews.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
