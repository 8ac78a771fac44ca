"""The marts: what people look at."""
