"""fcfl demo: a first run, on data that everybody can get."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fcfl.report.page import write_page
from fcfl.report.terminal import comparison_table, print_result
from fcfl.results import Result
from fcfl.runs import Experiment

from .console import out_console, say, usage
from .train import run_shown

app = App(name="demo")


@app.default
def demo(
    *,
    seed: Annotated[int, Parameter(help="Seed of the split.")] = 0,
    out: Annotated[Path, Parameter(help="Folder to write.")] = Path("runs/demo"),
) -> None:
    """Train on Adult with a budget of .05 per client for race, beside plain FedAvg.

    Two clients: people with a doctorate (413 training rows), and everybody else
    (32,148).
    """
    with usage():
        plain = Experiment("adult", sensitive=("race",), method="fedavg", seed=seed)
    finished = run_shown(replace(plain, method="sqp", budget=0.05), out, overwrite=True)
    compared = run_shown(plain, out / "fedavg", overwrite=True, on_message=lambda _: None)
    print_result(out_console, finished.result)
    results = {"fcfl": finished.result, "FedAvg": compared.result}
    out_console.print("", comparison_table(results, out_console.width), "")
    out_console.print(_about_the_smallest_group(finished.result), highlight=False)
    say(f"Written to {out}; open {write_page(out)}")


def _about_the_smallest_group(result: Result) -> str:
    groups = result.clients["phd"].test.disparities[0].groups
    smallest = min(groups, key=lambda group: group.rows)
    return (
        f"Client phd has {smallest.rows} test rows of group {smallest.group}: a "
        f"decision about one of them moves its disparity by {1 / smallest.rows:.2f}."
    )
