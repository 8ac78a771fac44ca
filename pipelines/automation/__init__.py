"""When it runs: what came in, what that makes due, and the sensors that ask for it."""
