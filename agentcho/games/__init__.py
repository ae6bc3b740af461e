"""Games of agents: one `play`, `runs` of many, their `results`, and the `tools` that agents may call."""
