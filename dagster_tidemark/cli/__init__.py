"""The console script `tidemark`: one module per command, and modules for the output of commands."""
