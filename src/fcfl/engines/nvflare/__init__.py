"""Sites with rows of their own, asked over NVIDIA FLARE.

Only modules of this package import nvflare; `TaskTransport` is the engine behind our `Transport`.
"""
