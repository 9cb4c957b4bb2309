"""Training in batches as a means to read rows: what a curious server tried, and what it reads."""

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from curious_server import CuriousServer

from fcfl._types import Point, Request
from fcfl.client.client import Evaluate
from fcfl.extras import MIN_BATCH_ROWS, LocalTraining
from fcfl.sites.messages import Ask, Refusal, encode_message

N_ROWS, N_TRAINED = 300, 210
MEASURES = ("age", "pulse", "weight")
STEP = 1e-6  # small beside 1: all batches of an epoch are evaluated at nearly the same parameters


def admissions():
    """Rows of three measured columns; no two rows are alike."""
    rng = np.random.default_rng(1)
    columns = {name: rng.normal(60.0, 15.0, N_ROWS).round(2) for name in MEASURES}
    race = np.where(np.arange(N_ROWS) < 140, "black", "white")
    died = np.where(rng.random(N_ROWS) < 0.4, "yes", "no")
    return pd.DataFrame({**columns, "race": race, "died": died})


class BatchReader(CuriousServer):
    """Reads single rows from where training in batches ends.

    With ``l2 = 1 / step_size`` a step discards the parameters it begins at. The end of an epoch is
    then the mean gradient of its last batch: at zero, half of a row with its label's sign if the
    batch has one row. Otherwise the sums of two last batches may differ by one row.
    """

    def question(self, *trainings, kinds=()):
        """Training from zero, in each of these ways; all of them are one message."""
        start = np.zeros(self.agreement.schema.n_features + 1)
        points = tuple(Point(start, extras=(one,)) for one in trainings)
        return Ask(self.agreement, Evaluate(self.setup(*kinds), Request(points)))

    def last_gradients(self, sizes, step=STEP, epochs=1):
        """The mean gradient of the last batch for each batch size."""
        asked = [LocalTraining(epochs, step, size, l2=1.0 / step) for size in sizes]
        said = self.ask(self.question(*asked))
        assert not isinstance(said, Refusal), said
        return [report.extras["local_params"] / -step for report in said]

    def encoded(self):
        """Rows as the site trains on them, and their labels."""
        known = self.said.statistics.columns
        columns = [
            (self.frame[name] - known[name].mean) / np.sqrt(known[name].m2 / known[name].n)
            for name in MEASURES
        ]
        place = [self.agreement.schema.feature_names.index(name) for name in MEASURES]
        X = np.empty((N_ROWS, len(MEASURES)))
        X[:, place] = np.column_stack(columns)
        return X[:N_TRAINED], (self.frame["died"] == "yes").to_numpy()[:N_TRAINED]

    def rows_in(self, gradients):
        """Rows of the table among vectors that are half a row with its label's sign."""
        known = self.said.statistics.columns
        mean = np.array([known[name].mean for name in MEASURES])
        scale = np.array([np.sqrt(known[name].m2 / known[name].n) for name in MEASURES])
        place = [self.agreement.schema.feature_names.index(name) for name in MEASURES]
        table, died = self.frame[[*MEASURES]].to_numpy(), self.frame["died"].to_numpy()
        found = set()
        for gradient in gradients:
            if not 0.49 < abs(gradient[-1]) < 0.51:
                continue
            values = mean + scale * (gradient[place] / gradient[-1])
            label = "yes" if gradient[-1] < 0 else "no"
            near = np.abs(table - values).max(axis=1) < 1e-3
            found |= set(np.flatnonzero(near & (died == label)).tolist())
        return found


def obedient_gradients(server, sizes, seed):
    """The same as `last_gradients`, of a client whose order and remainder the server chooses."""
    X, y = server.encoded()
    order = np.random.default_rng(seed).permutation(N_TRAINED)
    found = []
    for size in sizes:
        last = order[(N_TRAINED - 1) // size * size :]
        slopes = 0.5 - y[last]
        found.append(np.append(slopes @ X[last], slopes.sum()) / last.size)
    return found


def sums_apart(sizes, gradients):
    """Differences between sums over last batches, whatever rows they may have."""
    found = []
    for one, other in combinations(range(len(sizes)), 2):
        for rows, others in product(*(sizes_of_last(sizes[which]) for which in (one, other))):
            found.append(rows * gradients[one] - others * gradients[other])
    return found


def sizes_of_last(size):
    """A remainder, or one of equal parts."""
    parts = max(N_TRAINED // size, 1)
    return {N_TRAINED % size or size, N_TRAINED // parts, -(-N_TRAINED // parts)}


@pytest.fixture
def server(tmp_path):
    """The site has no policy file: it is closed."""
    server = BatchReader(tmp_path, frame=admissions())
    assert "policy" not in server.config and server.said.statistics.columns["age"].n == N_TRAINED
    return server


def test_batches_of_the_servers_choice_would_disclose_rows(server):
    """The attacks work, so that what stops them below is not a mistake in them."""
    seeds = range(1200)
    single = [obedient_gradients(server, [N_TRAINED - 1], seed)[0] for seed in seeds]
    assert len(server.rows_in(single)) > 200
    sizes = range(MIN_BATCH_ROWS, N_TRAINED)
    nested = obedient_gradients(server, sizes, seed=0)
    assert len(server.rows_in(sums_apart(sizes, nested))) > 80


def test_a_batch_of_all_rows_but_one_reads_no_row_of_a_closed_site(server):
    """Before, 1,300 seeds in one message read 209 of 210 rows; a message has no seed any more."""
    every = server.last_gradients([N_TRAINED - 1, N_TRAINED, 0])
    assert np.ptp(every, axis=0).max() == 0  # all rows at once
    assert server.rows_in(every) == set()


@pytest.mark.parametrize("epochs", [1, 2, 5])
@pytest.mark.parametrize("step", [STEP, 1e-3, 1.0, 100.0])
def test_no_batch_size_reads_a_row_of_a_closed_site(server, step, epochs):
    sizes = range(MIN_BATCH_ROWS, N_TRAINED + 30)
    gradients = server.last_gradients(sizes, step, epochs)
    assert server.rows_in(gradients) == set()
    assert server.rows_in(sums_apart(sizes, gradients)) == set()
    # There are as many splits as numbers of batches, and no other sums to subtract.
    assert len({one.tobytes() for one in gradients}) == N_TRAINED // MIN_BATCH_ROWS
    again = server.last_gradients(sizes, step, epochs)
    np.testing.assert_array_equal(again, gradients)


@pytest.mark.parametrize("size", [1, 2, MIN_BATCH_ROWS - 1, -1, -40])
def test_a_forged_batch_size_is_rejected(server, size):
    training = LocalTraining(1, STEP)
    object.__setattr__(training, "batch_rows", size)
    said = server.send(encode_message(server.question(training)))
    assert isinstance(said, Refusal) and "`batch_rows`" in said.sentence
