"""Programs over collections that change: how they run, within one shard. No Spark."""
