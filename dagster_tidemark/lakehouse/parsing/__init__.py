"""Parsers: bytes of files to typed rows, with Arrow. Runs and Spark's workers use the same code."""
