"""State that an earlier version wrote, and a test that this one goes on from it."""
