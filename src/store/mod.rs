//! The store: PostgreSQL, reached only from here. I/O that decides nothing.
