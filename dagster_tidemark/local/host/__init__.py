"""The machine below the platform: its Python and Java, processes, sockets and ports."""
