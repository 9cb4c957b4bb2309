"""Figures of reproduced items as SVG files of their own: fixed size, own style, no colour alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from fcfl.report.svg import nice_range, tag

from .axes import COLOURS, WIDTH, Frame, axes, legend, paper, shape
from .page_tables import Item, Row, clients_of, rows_of

ROW = 24.0


def figures_of(item: Item) -> dict[str, Markup]:
    """Figures by file name."""
    drawn = {
        "dots": _dots,
        "series": _series,
        "front": _front,
        "plane": _plane,
        "clients": _clients,
    }[item["figure"]](item)
    return {f"{item['name']}{suffix}.svg": figure for suffix, figure in drawn}


Figures = Iterator[tuple[str, Markup]]


# --- methods as rows, a mark for each client (figures 4, S1, S3, S4) ------------------------------


def _dots(item: Item) -> Figures:
    """Disparities and accuracies of both clients, one row a method, one figure a case."""
    protocol = list(item["protocols"])[-1]
    for number, case in enumerate(item["cases"]):
        rows = rows_of(item, case["name"], protocol)
        if rows:
            yield f"-{number + 1}", _dot_figure(item, case, rows, protocol)


def _dot_figure(item: Item, case: Mapping[str, Any], rows: Sequence[Row], protocol: str) -> Markup:
    clients = clients_of(item)
    height = 38 + ROW * len(rows) + 46
    top, bottom = 34.0, height - 46
    parts = []
    panels = (("disparity", 212.0, 440.0), ("accuracy", 470.0, WIDTH - 16))
    for key, left, right in panels:
        values = [v for row in rows for c in clients for v in _ends(row["clients"][c][key])]
        if key == "disparity":
            values += [0.0] + ([case["budget"]] if isinstance(case["budget"], float) else [])
        frame = Frame(nice_range(values), (0, len(rows)), (left, right), (bottom, top))
        parts += list(axes(frame, f"held-out {key}", None))
        if key == "disparity" and isinstance(case["budget"], float):
            parts.append(frame.line((case["budget"], 0), (case["budget"], len(rows)), "budget"))
        for position, row in enumerate(rows):
            y = len(rows) - position - 0.5
            for offset, client in zip((0.14, -0.14), clients, strict=False):
                found = row["clients"][client][key]
                low, high = _ends(found)
                at = y + offset
                colour = COLOURS[clients.index(client)]
                parts.append(frame.line((low, at), (high, at), "bar", colour))
                place = frame.at((found["mean"], at))
                parts.append(shape(clients.index(client), place, colour))
    for position, row in enumerate(rows):
        y = top + (position + 0.5) * (bottom - top) / len(rows)
        style = "name ours" if row["kind"] == "ours" else "name"
        words = row["label"].removeprefix("FCFL, ")
        parts.append(tag("text", words, x="204", y=f"{y + 4:g}", class_=style, text_anchor="end"))
    parts += legend([(c, i) for i, c in enumerate(clients)], 16)
    runs = max(row["n_runs"] for row in rows)
    title = f"{item['title']}, {case['name']}: {_runs(protocol, runs)}"
    bars = "marks are means, bars one standard deviation over splits"
    line = "; the dashed line is the budget" if isinstance(case["budget"], float) else ""
    return paper(f"{item['name']}-{case['name']}", title, f"{title}; {bars}{line}.", height, parts)


def _ends(found: Mapping[str, float | None]) -> tuple[float, float]:
    """One standard deviation to either side, or the value twice."""
    mean, sd = found["mean"] or 0.0, found["sd"] or 0.0
    return mean - sd, mean + sd


def _runs(protocol: str, count: int) -> str:
    word = {"resplits": "random re-split", "original": "seed"}.get(protocol, "random split")
    return f"{count} {word}{'' if count == 1 else 's'}"


# --- by w (figures 6, S2) -------------------------------------------------------------------------


def _series(item: Item) -> Figures:
    protocol = next(iter(item["protocols"]))
    clients = clients_of(item)
    lines = dict.fromkeys(r["line"] for r in item["rows"] if r["n_runs"])
    many = len(clients) > 2
    height = 360.0
    parts: list[Markup] = []
    panels = (("disparity", 66.0, 318.0), ("accuracy", 392.0, WIDTH - 16))
    for key, left, right in panels:
        curves = list(_curves(item, protocol, lines, clients, key))
        given = [] if many else list(_given_points(item, clients, key))
        across = [x for c in curves for x, _ in c[2]]
        values = [y for c in curves for _, y in c[2]] + [y for _, (_, y) in given]
        whose = _extreme_words(key) if many else key
        frame = Frame(nice_range(across), nice_range(values), (left, right), (height - 50, 72.0))
        parts += list(axes(frame, "w (share of the disparity without budgets)", f"test {whose}"))
        for client, line, points in curves:
            colour, dash = COLOURS[client], list(lines).index(line)
            parts.append(frame.path(points, colour, dash))
            parts += [shape(client, frame.at(p), colour, is_hollow=bool(dash)) for p in points]
        parts += [frame.cross(point) for _, point in given]
    labels = {r["line"]: r["label"] for r in item["rows"]}
    names = ["largest or lowest of all clients"] if many else clients
    parts += legend([(c, i) for i, c in enumerate(names)], 16)
    names_of = [(labels[line].removeprefix("FCFL, "), None) for line in lines]
    parts += legend(names_of, 36, dashes=True)
    if any(case["given"] for case in item["cases"]):
        parts.append(tag("text", "× authors' public results", x=f"{WIDTH - 16:g}", y="20",
                         text_anchor="end"))  # fmt: skip
    title = f"{item['title']}: test disparity and accuracy as budgets tighten"
    yield "", paper(item["name"], title, f"{title}, means over seeds.", height, parts)


def _extreme_words(key: str) -> str:
    return "disparity, largest of all" if key == "disparity" else "accuracy, lowest of all"


def _curves(
    item: Item, protocol: str, lines: Mapping[str, None], clients: Sequence[str], key: str
) -> Iterator[tuple[int, str, list[tuple[float, float]]]]:
    """Client or 0, line, and the points of its curve."""
    share = {case["name"]: float(case["name"].split("=")[1]) for case in item["cases"]}
    for line in lines:
        rows = [r for r in item["rows"] if r["line"] == line and r["n_runs"]]
        rows = [r for r in rows if r["protocol"] == protocol]
        if len(clients) > 2:
            name = "largest_disparity" if key == "disparity" else "worst_accuracy"
            yield 0, line, [(share[r["case"]], r[name]["mean"]) for r in rows]
            continue
        for position, client in enumerate(clients):
            points = [(share[r["case"]], r["clients"][client][key]["mean"]) for r in rows]
            yield position, line, points


def _given_points(
    item: Item, clients: Sequence[str], key: str
) -> Iterator[tuple[int, tuple[float, float]]]:
    for case in item["cases"]:
        for given in case["given"]:
            for position, client in enumerate(clients):
                yield position, (float(case["name"].split("=")[1]), given[key][client])


# --- the synthetic problem (figure 3) -------------------------------------------------------------


def _front(item: Item) -> Figures:
    starts = list(dict.fromkeys(case["name"].rsplit(", ", 1)[0] for case in item["cases"]))
    height = 380.0
    parts: list[Markup] = []
    for start, left, right in zip(starts, (60.0, 390.0), (314.0, WIDTH - 16), strict=False):
        frame = Frame((0.0, 1.03), (0.0, 1.03), (left, right), (height - 50, 84.0))
        parts += list(axes(frame, "first objective", "second objective"))
        words = f"{start[0].upper()}{start[1:]}"
        parts.append(tag("text", words, x=f"{left:g}", y="56", class_="name"))
        cases = [case for case in item["cases"] if case["name"].startswith(start)]
        parts.append(frame.path(item["front"], "#555555", 1))
        for number, case in enumerate(cases):
            colour = COLOURS[number % len(COLOURS)]
            ends = (0.0, case["budget"]), (1.03, case["budget"])
            parts.append(frame.line(*ends, "budget", colour))
            for row in rows_of(item, case["name"], "starts"):
                path = [(x, y) for x, y in row["runs"][0]["path"]]
                if row["line"] == "sqp":
                    parts.append(frame.path(path, colour, 2))
                    parts += [shape(1, frame.at(p), colour, is_hollow=True, size=0.6) for p in path]
                else:
                    parts.append(frame.path(path, colour, 0))
                    parts.append(shape(0, frame.at(path[-1]), colour))
    told = "solid: two-stage; squares: sqp, every round; grey: Pareto front; "
    parts.append(tag("text", told + "dashed lines: budgets, a colour each", x="16", y="22"))
    title = "Synthetic problem: paths to the constrained optimum"
    yield "", paper(item["name"], title, f"{title}, {told} one colour a budget.", height, parts)


# --- accuracy against disparity (five clients) and clients as points (figure 5) -------------------


def _plane(item: Item) -> Figures:
    """Accuracy against the largest local disparity over clients large enough to show one."""
    dots = [dot for dot in _plane_dots(item) if dot[2] is not None]
    height = 66.0 + 18 * max(len(dots), 18) + 40
    across = nice_range([0.0, *(x for _, _, x, _ in dots)])
    upward = nice_range([y for *_, y in dots])
    frame = Frame(across, upward, (62.0, 430.0), (height - 50, 66.0))
    parts = list(axes(frame, "largest local disparity, held out", "accuracy of all rows"))
    limit = item["limits"]["local"]
    parts.append(frame.line((limit, frame.y[0]), (limit, frame.y[1]), "budget"))
    for number, (kind, name, x, y) in enumerate(dots, start=1):
        colour = COLOURS[_KINDS[kind]]
        place = frame.at((x, y))
        parts.append(shape(_KINDS[kind], place, colour))
        beside = {"x": f"{place[0] + 7:.1f}", "y": f"{place[1] - 4:.1f}", "class_": "small"}
        parts.append(tag("text", str(number), **beside))
        row = 58.0 + 18 * number
        parts.append(shape(_KINDS[kind], (452.0, row - 4), colour))
        parts.append(tag("text", f"{number}  {name}", x="464", y=f"{row:g}", class_="small"))
    words = ("baselines", "two-stage, authors' options", "sqp", "figures of later papers")
    parts += legend([(w, i) for i, w in enumerate(words)], 16)
    title = f"{item['title']}: accuracy against the largest local disparity"
    told = f"{title}; clients with 100 held-out rows of each group; dashed: the limit aimed at."
    yield "", paper(item["name"], title, told, height, parts)


_KINDS = {"baseline": 0, "theirs": 1, "ours": 2, "given": 3}


def _plane_dots(item: Item) -> Iterator[tuple[str, str, Any, float]]:
    """Kind, name, largest local disparity and accuracy of every line."""
    for row in item["rows"]:
        if row["n_runs"]:
            local = row["largest_large_disparity"]["mean"]
            yield row["kind"], _short(row), local, row["accuracy"]["mean"]
    for given in (given for case in item["cases"] for given in case["given"]):
        numbers = given["numbers"]
        yield "given", given["label"], numbers["local"], numbers["accuracy"]


def _short(row: Row) -> str:
    name = str(row["label"]).removeprefix("FCFL, ")
    return name if row["kind"] != "ours" or "chosen" in name else f"{name}, {row['case']}"


def _clients(item: Item) -> Figures:
    """Each client a point: accuracy against disparity, one panel a method, one figure a case."""
    for number, case in enumerate(item["cases"]):
        rows = rows_of(item, case["name"], next(iter(item["protocols"])))
        if not rows:
            continue
        parts: list[Markup] = []
        height = 300.0
        points = {
            row["line"]: [
                (c["disparity"]["mean"], c["accuracy"]["mean"]) for c in row["clients"].values()
            ]
            for row in rows
        }
        everything = [p for found in points.values() for p in found if p[0] is not None]
        x_range = nice_range([0.0, *(x for x, _ in everything)])
        y_range = nice_range([y for _, y in everything])
        width = (WIDTH - 62.0) / len(rows)
        for position, row in enumerate(rows):
            left = 56.0 + position * width
            frame = Frame(x_range, y_range, (left, left + width - 14), (height - 50, 62.0))
            parts += list(
                axes(frame, "disparity", "accuracy" if position == 0 else None, n_ticks=2)
            )
            if isinstance(case["budget"], float):
                budget = case["budget"]
                parts.append(frame.line((budget, y_range[0]), (budget, y_range[1]), "budget"))
            found = [p for p in points[row["line"]] if p[0] is not None]
            kind = 2 if row["kind"] == "ours" else 1 if row["kind"] == "theirs" else 0
            parts += [shape(kind, frame.at(p), COLOURS[kind]) for p in found]
            words = row["label"].removeprefix("FCFL, ").split(",")[0].split(" (")[0]
            place = {"x": f"{left:.0f}", "y": "30", "class_": "name"}
            parts.append(tag("text", words, **place))
        title = f"{item['title']}, {case['name']}: each client's accuracy and disparity"
        yield f"-{number + 1}", paper(f"{item['name']}-{number}", title, f"{title}, held-out rows, "
                                      "means over splits.", height, parts)  # fmt: skip
