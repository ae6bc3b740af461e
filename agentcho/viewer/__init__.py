"""A run as one page: the talk, who could read what, and what reached whom."""
