"""People who play at a terminal: `seated` opens it, as a full screen or line by line."""
