"""Sites with rows of their own, asked over Flower.

``letters`` are all that crosses the wire, ``site`` answers them where the rows are, ``sites`` asks.
Only ``client_app`` and ``server_app`` import Flower; the rest runs, and is tested, without it.
"""
