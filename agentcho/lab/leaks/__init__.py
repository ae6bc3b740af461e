"""What a public sentence gives away of a private prompt: attacks on keys and values, by way of reading."""
