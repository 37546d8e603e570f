"""What a user of the dialect writes: components, topologies, groupings, settings. Declares; runs nothing."""
