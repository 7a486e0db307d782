"""Other compilers' backends, and backends that users register."""
