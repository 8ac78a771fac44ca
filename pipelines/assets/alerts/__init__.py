"""The alerts: what somebody has to act on."""
