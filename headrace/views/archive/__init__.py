"""The archive: files of master data, their manifests and the writer's lock, as far as they need no Spark."""

from headrace.views.archive.archivetable import Archive

__all__ = ["Archive"]
