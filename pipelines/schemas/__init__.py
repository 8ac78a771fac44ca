"""What a row is: the grocer's tables. One module per layer."""
