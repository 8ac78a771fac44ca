"""Generates the files that `tidemark init` and `tidemark new` write: a project, a feed's module, a table's modules."""
