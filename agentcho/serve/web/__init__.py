"""Routes, keys and sockets: who may send requests, and how answers are delivered."""
