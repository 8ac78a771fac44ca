"""The alerts: events that need an operator's action."""
