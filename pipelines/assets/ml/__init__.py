"""The models: what is learned from the tables, and what follows from it."""
