"""The Unix socket: who may report, and how reports come in."""
