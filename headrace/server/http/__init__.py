"""HTTP itself: routing, bodies, JSON, limits of load. It knows no view."""
