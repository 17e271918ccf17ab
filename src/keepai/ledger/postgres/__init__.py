"""The ledger in a PostgreSQL database, through psycopg, which the extra `keepai[postgres]` brings."""
