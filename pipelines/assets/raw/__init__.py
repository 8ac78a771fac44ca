"""The source assets: one per feed, and one per stream of messages."""
