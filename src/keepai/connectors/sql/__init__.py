"""A database as an outside system: SQLite through apsw, PostgreSQL through psycopg; scripts never write SQL."""
