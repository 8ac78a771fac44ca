"""What `tidemark init` and `tidemark new` write: a project, a feed's module from a sample, a table's modules."""
