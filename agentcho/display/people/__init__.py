"""People at a terminal: `seats` opens it, whole or line by line, and `Withheld` is what else is shown meanwhile."""
