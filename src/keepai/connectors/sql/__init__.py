"""A database as an outside system, for scripts that cannot write SQL. In reading order:

sql_connector        what scripts call
row_changes          the steps of each operation, and the look-up afterwards
statement_writer     writes the statements
catalog              tables, columns and keys, as the database describes them
sqlite               runs steps on an SQLite file (apsw)
postgres             runs steps on a PostgreSQL server (psycopg)
postgres_connection  connects to a PostgreSQL server
"""
