"""Reports for people, rendered from result files only, so they can be repeated without training."""
