"""Integrations with other systems, one folder and one optional extra each: clusters, games, logs, traces and
servers.
"""
