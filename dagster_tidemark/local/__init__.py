"""The laptop platform: what `make dev` starts, watches and stops. In production a cluster takes its place."""
