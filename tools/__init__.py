"""Programs for the project's developers. Not in the wheel."""
