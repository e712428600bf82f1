"""Pages and figures of a model's attention."""
