"""What the project is made with: not in the wheel."""
