"""The trainer's process: it starts the backend, runs the engine, and serves it over HTTP."""
