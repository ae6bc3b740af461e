"""The server: what it shares, with whom, and what it says to clients."""
