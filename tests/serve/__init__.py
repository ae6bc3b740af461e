"""Tests of the server: what it shares, with whom, and what it tells clients."""
