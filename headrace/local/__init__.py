"""Process locks and atomically replaced files, on a local disk."""
