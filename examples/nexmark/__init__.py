"""Nexmark: people, auctions and bids, and the queries of the benchmark in Headrace, in columns and in functions."""
