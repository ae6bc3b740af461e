"""Programs for the project's makers: not in the wheel."""
