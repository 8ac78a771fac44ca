"""The declared tables: one module per layer."""
