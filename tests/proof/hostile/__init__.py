"""Hostile input, written from the specification alone."""
