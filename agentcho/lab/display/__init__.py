"""What the lab has measured, as tables of a terminal and of pages."""
