"""The interface of engines: calls, options, receipts, and their validation. No torch, no event loop."""
