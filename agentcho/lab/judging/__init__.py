"""Whether who judges what others said picks the same when it reads what is reused."""
