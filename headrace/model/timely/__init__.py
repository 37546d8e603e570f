"""Timely dataflow: times with loop counters, graphs with loops, and which notices are safe. No Spark, no state."""
