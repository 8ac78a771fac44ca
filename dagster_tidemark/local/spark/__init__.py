"""The Spark Connect server of the laptop platform: its jars, its start, its class archive."""
