"""The console script `pipelines`: one module a command, and what commands print."""
