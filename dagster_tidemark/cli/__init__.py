"""The console script `tidemark`: one module per command, and the commands' output."""
