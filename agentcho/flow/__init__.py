"""Information flow: who may read what, through which encodings. No torch, no event loop."""
