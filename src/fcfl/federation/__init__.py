"""Where clients run, and the one loop that asks them."""
