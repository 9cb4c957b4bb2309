"""Methods that train from reports: SQP, the paper's two stages, the private method, baselines."""
