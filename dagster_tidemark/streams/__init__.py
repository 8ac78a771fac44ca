"""Messages as data: streams, what is committed of them, and what is answered. Long-lived runs do it (`shift`)."""
