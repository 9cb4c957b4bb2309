"""NVIDIA FLARE as the engine, the recommended one (docs/nvflare.md).

`kits` makes what each machine needs, `lead` starts and follows runs, `server` and `site` are the
two parts of a job, and `rehearsal` runs all of them on one machine. No other package imports
nvflare.
"""
