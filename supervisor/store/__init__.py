"""Database: SQLAlchemy Core tables, Alembic migrations, query functions.

It holds what must survive a crash. No other part writes SQL. Queries use what SQLite and PostgreSQL
share (`ON CONFLICT`, `RETURNING`, partial unique indexes). Start with `tables`, then `engine`.
"""
