"""Views: aggregations of topics, kept and served. A batch and a speed layer make them; an answer merges both."""
