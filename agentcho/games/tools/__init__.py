"""Tools that agents may call: functions of the user, and those of MCP servers."""
