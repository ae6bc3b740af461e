"""Attention of running rows and of new messages: one interface, and the backends that implement it."""
