"""Geometry: what is drawn is where the numbers are."""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcfl.report.figures import (
    MARKS,
    Dot,
    Scale,
    claim_scale,
    nice_range,
    nice_step,
    path_figure,
    scatter,
    shortened,
    thinned,
)
from fcfl.report.page import environment
from fcfl.report.words import claims_of
from simulated import ROUNDS, client, judged, result
from simulated import parsed as read

drawn = environment().get_template("figures.html").module
BAD_NAME = "<script>alert('1')</script>&\"☃"


def parsed(markup):
    """The figure as XML: it must be well formed."""
    return ET.fromstring(str(markup).strip())


def share(text):
    return float(text.removesuffix("%"))


def one_claim(*numbers, rule="difference", name="a"):
    return claims_of(read(result({name: client(judged(*numbers, rule=rule))})))[0]


@given(st.floats(1e-9, 1e9))
def test_a_step_is_round_and_just_large_enough(least):
    step = nice_step(least)
    assert least * (1 - 1e-9) <= step <= 2.5 * least
    assert re.fullmatch(r"[125]", f"{step:.0e}"[0])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9))
def test_every_value_lies_within_its_scale_and_ticks_too(values):
    scale = Scale(*nice_range(values), 10.0, 90.0)
    places = [scale.at(value) for value in values]
    assert all(10.0 <= place <= 90.0 for place in places)
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [places[i] for i in order] == sorted(places)
    ticks = scale.ticks(6)
    assert 2 <= len(ticks) <= 8
    assert all(scale.low - 1e-9 <= t <= scale.high + 1e-9 for t in ticks)


def test_the_bar_spans_the_interval_and_the_tick_stands_at_the_budget():
    claim = one_claim(0.1, 0.05, 0.2, 0.15, "undetermined")
    scale = Scale(0.0, 0.2, 0.0, 100.0)
    figure = parsed(drawn.claim_strip(claim, scale, "x"))
    (bar,) = [r for r in figure.iter("rect") if r.get("class") == "bar v-undetermined"]
    assert (share(bar.get("x")), share(bar.get("width"))) == (25, 75)
    (tick,) = [element for element in figure.iter("line") if element.get("class") == "budget"]
    assert share(tick.get("x1")) == share(tick.get("x2")) == 75
    (dot,) = [element for element in figure.iter("svg") if element.get("overflow")]
    assert share(dot.get("x")) == 50
    (beyond,) = [r for r in figure.iter("rect") if r.get("class") == "beyond"]
    assert (share(beyond.get("x")), share(beyond.get("width"))) == (75, 25)


def test_beyond_a_ratios_budget_is_below_it():
    claim = one_claim(0.9, 0.85, 1.0, 0.8, "met", rule="ratio")
    figure = parsed(drawn.claim_strip(claim, Scale(0.0, 1.0, 0.0, 100.0), "x"))
    (beyond,) = [r for r in figure.iter("rect") if r.get("class") == "beyond"]
    assert (share(beyond.get("x")), share(beyond.get("width"))) == (0, 80)


@pytest.mark.parametrize(
    ("numbers", "rule", "ends"),
    [
        ((0.1, 0.0, 0.19, 0.05, "undetermined"), "difference", (0.0, 0.2)),
        ((0.0, 0.0, 0.0, 0.0, "met"), "difference", (0.0, 0.001)),
        ((1.0, 0.9, 1.0, 0.5, "exceeded"), "difference", (0.0, 1.0)),
        ((0.9, 0.72, 1.0, 0.8, "undetermined"), "ratio", (0.7, 1.0)),
        ((0.0, 0.0, 0.4, 0.8, "exceeded"), "ratio", (0.0, 1.0)),
    ],
)
def test_a_scale_holds_all_it_shows_and_begins_at_no_disparity(numbers, rule, ends):
    scale = claim_scale([one_claim(*numbers, rule=rule)])
    assert (scale.low, scale.high) == pytest.approx(ends)
    parsed(drawn.axis(scale))


def test_what_cannot_be_measured_has_no_mark():
    figure = parsed(
        drawn.claim_strip(one_claim(None, None, None, 0.1, "undetermined"), Scale(0, 1), "x")
    )
    assert not list(figure.iter("path"))
    assert "Value –" in figure.find("desc").text


def test_every_verdict_has_a_shape_of_its_own():
    judged_marks = [MARKS[verdict] for verdict in ("met", "exceeded", "undetermined")]
    assert len(set(judged_marks)) == 3
    for verdict in MARKS:
        parsed(drawn.mark(verdict, 50, 10))


def test_figures_are_named_and_described_for_those_who_do_not_see_them():
    dots = [Dot(BAD_NAME, 0.1, 0.7, "met", True), Dot("b", 0.2, 0.8, "exceeded", True)]
    figures = [
        drawn.claim_strip(one_claim(0.1, 0.0, 0.2, 0.1, "met", name=BAD_NAME), Scale(0, 1), "s"),
        drawn.plot(scatter("t", "Title", dots, ("difference", "accuracy"), budget=0.15)),
        drawn.plot(path_figure(ROUNDS, "worst_loss")),
    ]
    for figure in map(parsed, figures):
        assert figure.get("role") == "img"
        ids = {element.get("id") for element in figure.iter() if element.get("id")}
        assert set(figure.get("aria-labelledby").split()) == ids
        assert figure.find("title").text and figure.find("desc").text


def test_names_are_escaped_everywhere():
    figure = drawn.plot(scatter("t", "T", [Dot(BAD_NAME, 0.1, 0.7, is_named=True)], ("x", "y")))
    assert "<script" not in figure and shortened(BAD_NAME) in "".join(parsed(figure).itertext())
    assert shortened("x" * 40) == "x" * 17 + "…"


def test_names_of_close_dots_do_not_touch():
    dots = [Dot(f"c{i}", 0.1, 0.7, is_named=True) for i in range(6)]
    figure = parsed(drawn.plot(scatter("t", "T", dots, ("x", "y"))))
    heights = [float(e.get("y")) for e in figure.iter("text") if e.get("class") == "name"]
    assert len(heights) == 6
    assert min(b - a for a, b in pairwise(heights)) >= 16


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=3000))
def test_a_thinned_line_keeps_its_extremes_and_its_end(values):
    points = list(enumerate(values))
    kept = thinned(points, most=100)
    assert len(kept) <= 102
    assert kept[-1] == points[-1]
    assert {min(v for _, v in kept), max(v for _, v in kept)} == {min(values), max(values)}
    assert [n for n, _ in kept] == sorted(n for n, _ in kept)


def test_the_path_shows_stages_and_survives_gaps():
    figure = parsed(drawn.plot(path_figure(ROUNDS, "worst_loss")))
    texts = [element.text for element in figure.iter("text")]
    assert "stage 1" in texts and "stage 2" in texts
    gaps = [replace(info, worst_loss=math.nan) for info in ROUNDS]
    assert path_figure(gaps, "worst_loss") is None
    parsed(drawn.plot(path_figure([*gaps[:4], ROUNDS[4]], "worst_loss")))
