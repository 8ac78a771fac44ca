"""Deliveries of a partner: several files and a manifest, loaded as a whole or not at all, and answered."""
