"""Starts the whole deployment as separate processes, and ends it without leaving anything."""
