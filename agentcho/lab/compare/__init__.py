"""The same games played in several ways, and compared."""
