"""Clients that sum under masks, asked without messages; some may be killed at some step."""

from dataclasses import dataclass, field, replace

import numpy as np

from fcfl._types import CurvatureWeights, Point, Report, Request
from fcfl.client.client import Evaluate, Setup
from fcfl.federation.journal import Journal
from fcfl.federation.masks.holder import MaskHolder, MaskJournal, derive
from fcfl.federation.masks.messages import MaskedAsk, PrepareMasks, SumTerms
from fcfl.federation.masks.sums import MaskedSums
from fcfl.policy import MaskPolicy

N_PARAMS = 4


def holder(name, policy=None, path=None):
    return MaskHolder(
        name, derive(name.encode(), "test"), MaskJournal(Journal(path)), policy or MaskPolicy()
    )


def terms_of(holders, threshold=None, run="run 1"):
    threshold = threshold or 2 * len(holders) // 3 + 1
    return SumTerms(run, threshold, {name: one.public for name, one in holders.items()})


def curvature(name, point, weights):
    """Some symmetric matrix of the client's own."""
    half = np.random.default_rng(list(name.encode())).normal(size=(N_PARAMS, N_PARAMS))
    return weights.loss * (half @ half.T) * (1 + point.params @ point.params)


def reports(name, question):
    found = []
    for point in question.question.request.points:
        report = Report(10.0, 0.5, np.array([4.0]), np.array([0.5]))
        if point.want == "curvature":
            own = curvature(name, point, point.curvature_weights[name])
            report = replace(report, curvature=own)
        found.append(report)
    return tuple(found)


ALIKE = CurvatureWeights(0.2, np.zeros(1))


def question(names, at=0.0, weights=ALIKE, n_points=1):
    all_weights = dict.fromkeys(names, weights)
    points = [Point(np.full(N_PARAMS, at + i), "curvature", all_weights) for i in range(n_points)]
    return Evaluate(Setup(None, ()), Request((Point(np.zeros(N_PARAMS)), *points)))


def answered(one, asked):
    """What a client says to any of the three questions."""
    if isinstance(asked, PrepareMasks):
        return one.prepare(asked.terms)
    if isinstance(asked, MaskedAsk):
        one.check(asked)
        return one.mask(asked, reports(one.name, asked))
    return one.unmask(asked)


@dataclass
class Table:
    """``killed`` has who does not answer which kind of question; ``heard`` has all answers."""

    holders: dict
    killed: dict = field(default_factory=dict)
    heard: list = field(default_factory=list)

    @classmethod
    def of(cls, *names, **given):
        return cls({name: holder(name) for name in names}, **given)

    def sums(self, threshold=None, *, needs_all=False):
        terms = terms_of(self.holders, threshold)
        return MaskedSums(terms, self.ask, self.ask_some, needs_all=needs_all)

    def ask(self, asked, check, names=None):
        away = self.killed.get(type(asked).__name__, ())
        said = {}
        for name in names or self.holders:
            if name not in away:
                own = asked.for_client(name)
                said[name] = answered(self.holders[name], own)
                check(name, said[name])
                self.heard.append((name, own, said[name]))
        return said

    def ask_some(self, asked, check, names, enough):
        return self.ask(asked, check, names)
