"""Answers to the messages of a stream: the declaration, the worker of a shift that answers, and the table."""
