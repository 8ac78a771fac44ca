"""Readers: inspection of files in the landing bucket, file formats, and the rows of a load's files."""
