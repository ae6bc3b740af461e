"""What an engine can be asked, and whether it can be worked with. No torch, no event loop."""
