"""Training methods: SQP, the two-stage method of the paper, the private method and baselines."""
