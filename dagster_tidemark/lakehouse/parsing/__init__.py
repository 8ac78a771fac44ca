"""Bytes of files to typed rows, over Arrow: the same code in a run's process and on Spark's workers."""
