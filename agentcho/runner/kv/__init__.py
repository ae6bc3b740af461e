"""Keys and values: where encodings are stored, where running decodes keep them, and how they are moved between."""
