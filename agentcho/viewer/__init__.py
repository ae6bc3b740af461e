"""A run as an HTML page: the messages, who could read them, and what reached whom."""
