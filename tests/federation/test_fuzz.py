"""A small part of ``python -m benchmarks.fuzz``: nothing but our own errors comes of any bytes."""

from benchmarks.fuzz import fuzz


def test_mutated_messages_and_checkpoints_raise_only_our_errors():
    figures = fuzz(1500, 300, seed=1)
    assert figures.escapes == []
    assert figures.messages == 1500 and figures.checkpoints == 300
    refused = ("question: Refusal", "answer: WireError", "checkpoint: CheckpointError")
    assert all(figures.outcomes[outcome] > 100 for outcome in refused)
