"""What `tidemark new` writes: a feed's module from a sample file, a table's module from its inputs."""
