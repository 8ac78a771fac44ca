"""The console script `tidemark`: one module a command, and what commands print."""
