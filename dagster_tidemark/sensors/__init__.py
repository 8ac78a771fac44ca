"""The sensors and schedules, one file each, named as in the UI; and what they observe of the landing bucket."""
