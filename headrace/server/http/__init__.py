"""The HTTP layer: routing, bodies, JSON, OpenAPI, limits of load. It knows no view."""
