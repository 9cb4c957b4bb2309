"""Sites with rows of their own, asked over Flower.

Only ``client_app`` and ``server_app`` import Flower; the rest helps to deploy and to rehearse.
"""
