"""Kinds of files that people have, generated at each size with the rows that they hold."""
