"""Starting, watching and stopping the services of the laptop platform."""
