"""Add traffic: requests and bytes of each session.

Requests and bytes of earlier model calls are included.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "traffic",
        sa.Column("session_id", sa.String(64), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("bytes_out", sa.BigInteger, nullable=False),
        sa.Column("held_requests", sa.BigInteger, nullable=False),
        sa.Column("held_bytes_out", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_traffic_day", "traffic", ["day"])
    op.execute(
        "INSERT INTO traffic (session_id, day, requests, bytes_out, held_requests, held_bytes_out)"
        " SELECT session_id, day, count(*), sum(bytes_out), 0, 0 FROM spending GROUP BY"
        " session_id, day"
    )
