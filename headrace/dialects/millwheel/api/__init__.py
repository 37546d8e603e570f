"""What users declare and write: computations, their records, timers, state and injectors."""
