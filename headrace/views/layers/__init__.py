"""The batch layer and the speed layer of views, on Spark."""
