"""Figures and health of a deployment over HTTP: `tidemark metrics`."""
