"""From files to rows of text: what is in a file, and the readers for small and for large ones."""
