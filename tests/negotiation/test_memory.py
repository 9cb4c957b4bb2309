"""What a negotiation has trained outlasts the process that trained it."""

from fcfl.negotiation.memory import Alone, Free, Memory
from fcfl.results.negotiation import Offer, View

VIEW = View(0.1 + 0.2, 0.5, 1 / 3, (0.7, 0.9), None)
OFFER = Offer({"a": 0.1, "b": 0.05}, {"a": VIEW, "b": VIEW}, {"a": 1e-17}, True, "because")


def filled(path):
    memory = Memory(path)
    memory.add(Free(0.003, "mean", (1 / 3, -0.0), {"a": 0.2, "b": 0.1}, "test"))
    memory.add(Alone("a", None, VIEW, VIEW))
    memory.add(Alone("a", 0.1, VIEW, VIEW))
    memory.add(OFFER)
    return memory


def test_what_is_read_back_is_what_was_trained_to_the_last_bit(tmp_path):
    written, read = filled(tmp_path / "fits.sqlite"), Memory(tmp_path / "fits.sqlite")
    assert read.free == written.free and read.free.params == (1 / 3, -0.0)
    assert read.alone("a", 0.1) == Alone("a", 0.1, VIEW, VIEW)
    assert read.alone("a", None).budget is None and read.alone("b", None) is None
    assert read.offer({"a": 0.1, "b": 0.05}, "because") == OFFER
    assert read.offer({"a": 0.1, "b": 0.05}, "anew").found_by == "anew"
    assert read.offer({"a": 0.05, "b": 0.1}, "") is None


def test_without_a_path_nothing_is_written():
    assert filled(None).offer(OFFER.budgets, "because") == OFFER
