"""The paper's tables and figures again: items as TOML files, runs in processes, results."""
