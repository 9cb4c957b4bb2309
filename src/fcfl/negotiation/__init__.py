"""Which budgets clients could agree on: combinations tried, ballots cast, votes counted."""
