"""Models behind server APIs: a `TextPort` over the `openai` package, which only `client` and `wire` import."""
