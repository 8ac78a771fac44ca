"""Sensors and schedules, one file each, named as in the UI, and their observations of the landing bucket."""
