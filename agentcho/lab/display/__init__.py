"""Shows what the lab has measured, as tables in the terminal and on pages."""
