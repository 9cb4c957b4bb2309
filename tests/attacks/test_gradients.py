"""Gradients disclose a site's curvature, as SECURITY.md states: masking it protects nothing."""

import numpy as np
from curious_server import CuriousServer

from fcfl._types import CurvatureWeights, Point, Request
from fcfl.client.client import Evaluate
from fcfl.sites.messages import Ask, Refusal

STEP = 1e-4


def test_gradients_at_nearby_models_give_a_sites_curvature(tmp_path):
    server = CuriousServer(tmp_path)
    setup = server.setup("selection")
    params = np.linspace(-0.3, 0.4, setup.model.n_params)
    weights = {"north": CurvatureWeights(1.0, np.zeros(len(setup.rates)))}
    nearby = [params + sign * STEP * axis for axis in np.eye(params.size) for sign in (1, -1)]
    points = (
        Point(params, "curvature", weights),
        *(Point(one, "gradients") for one in nearby),
    )
    curved, *around = server.ask(Ask(server.agreement, Evaluate(setup, Request(points))))
    slopes = np.array([report.loss_grad for report in around])
    guessed = (slopes[0::2] - slopes[1::2]) / (2 * STEP)
    assert np.abs(guessed - curved.curvature).max() < 1e-7


def test_a_site_may_send_no_curvature(tmp_path):
    server = CuriousServer(tmp_path, policy="[limits]\ncurvature = false\n")
    setup = server.setup("selection")
    weights = {"north": CurvatureWeights(1.0, np.zeros(len(setup.rates)))}
    point = Point(np.zeros(setup.model.n_params), "curvature", weights)
    said = server.ask(Ask(server.agreement, Evaluate(setup, Request((point,)))))
    assert isinstance(said, Refusal) and "curvature" in said.sentence
