"""Parsers that turn the bytes of files into typed rows, with Arrow. Runs and Spark's workers use the same code.

Vectorised code parses most values. The slower *exact rule* of each format parses the others, one at a time.
"""
