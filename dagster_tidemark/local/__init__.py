"""The laptop platform: the services of `make dev`. In production a cluster takes its place."""
