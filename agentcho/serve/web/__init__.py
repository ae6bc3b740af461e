"""Routes, keys, sockets: who may ask, and how an answer gets to them."""
