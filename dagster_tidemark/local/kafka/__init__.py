"""The Kafka broker of the laptop platform: its jars, its start, its topic."""
