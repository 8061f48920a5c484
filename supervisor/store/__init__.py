"""State that must survive a crash: SQLite through SQLAlchemy Core, Alembic migrations, plain query
functions.

No other part writes SQL. Queries use what SQLite and PostgreSQL share (`ON CONFLICT`, `RETURNING`,
partial unique indexes). Start with `tables`.
"""
