"""What a row is: the tables. One module per layer."""
