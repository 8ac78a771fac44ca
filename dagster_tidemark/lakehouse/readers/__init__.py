"""Readers: inspection of landed files, file formats, and the rows of a load's files."""
