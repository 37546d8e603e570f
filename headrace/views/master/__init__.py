"""Master data on Spark: archives the records of a topic to Parquet, compacts them, and reads them back."""

from headrace.views.master.masterdata import Master

__all__ = ["Master"]
