"""One run on many machines: a driver deals games to workers, and writes what they bring back into one record."""
