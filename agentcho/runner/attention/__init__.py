"""How running rows and new messages attend: one interface, and the backends that answer it."""
