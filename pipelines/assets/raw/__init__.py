"""The source assets: one per feed."""
