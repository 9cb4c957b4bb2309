"""Adapter of NVIDIA FLARE, the recommended engine (docs/nvflare.md).

`kits` makes the startup kits of all machines, `lead` starts and follows runs, `server` and `site`
are the two parts of a job, and `rehearsal` runs all of them on one machine. No other package
imports nvflare.
"""
