"""Cross-validation on a part of the rows as a means to read the others."""

import numpy as np
import pytest
from curious_server import CuriousServer, patients

from fcfl._types import Fold, Point, Request
from fcfl.client.questions import Evaluate
from fcfl.federation.messages import Ask, Refusal


def gradient_sum(server, most_rows):
    """The sum of the rows' gradients over at most so many of them; none is held out."""
    point = Point(np.zeros(2), "gradients", fold=Fold(5, 5, 0, most_rows))
    said = server.ask(Ask(server.agreement, Evaluate(server.setup(), Request((point,)))))
    return said if isinstance(said, Refusal) else said[0].loss_grad * said[0].n_rows


def test_two_numbers_of_thinned_rows_do_not_differ_by_one_row(tmp_path):
    """Before, 189 and 188 rows of a closed site had gradients that differed by one row."""
    server = CuriousServer(tmp_path)
    for most_rows in (189, 188, 101, 99, 50, 1):
        said = gradient_sum(server, most_rows)
        assert isinstance(said, Refusal) and "`most_rows`" in said.sentence
    for most_rows in (100, 300):
        assert not isinstance(gradient_sum(server, most_rows), Refusal)


@pytest.mark.parametrize(("n_rows", "apart"), [(144, 1), (150, 5), (170, 19)])
def test_thinning_that_leaves_few_rows_out_is_refused(tmp_path, n_rows, apart):
    server = CuriousServer(tmp_path, frame=patients().iloc[:n_rows])
    said = gradient_sum(server, 100)
    assert isinstance(said, Refusal) and f"would set {apart} rows apart" in said.sentence
