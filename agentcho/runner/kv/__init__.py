"""Keys and values: the store of encodings, the slots of running decodes, and how keys and values move between them."""
