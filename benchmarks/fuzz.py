"""Mutated messages and checkpoints: nothing but our own errors may come of them.

`python -m benchmarks.fuzz` takes a site's real conversation and a run's checkpoint, changes bytes
or parts of their trees at random (100,000 messages, 20,000 checkpoints), and gives them to the
site, to the server's checks and to the reader of checkpoints. Exits 1 when another error escapes,
a site's answer cannot be read, or the process ever took 200 MB. Prints the slowest message.
"""

import argparse
import copy
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from fcfl._types import CurvatureWeights, Point, RateId, Request
from fcfl.client.client import Count, Evaluate, Setup
from fcfl.errors import FCFLError
from fcfl.federation.checkpoint import checkpoint_path, load_checkpoint, save_checkpoint
from fcfl.federation.federation import (
    check_counted,
    check_reports,
    check_site_introduction,
)
from fcfl.federation.loop import Progress
from fcfl.federation.serialise import seal
from fcfl.methods.sqp import SQP, SQPState
from fcfl.models.linear import Linear
from fcfl.problem import build_problem
from fcfl.rules import Difference
from fcfl.sites.exchange import check_content
from fcfl.sites.messages import Ask, Introduce, Terms, decode_answer, encode_message
from fcfl.sites.remote import agree
from fcfl.sites.site import reply_to

MOST_MEMORY = 200.0  # MB
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, -(2**63), 1e308, float("nan"), float("inf"), "", "north", "\x00", [],
    [1], {}, {"a": [1, 2]}, {"@": "Point"}, {"@": []}, {"@": "Path"}, {"@": "Count", "params": 5},
    msgspec.msgpack.Ext(1, b""), msgspec.msgpack.Ext(2, b"12345678"), "x" * 5000,
)  # fmt: skip


@dataclass
class Figures:
    """What came of it."""

    messages: int = 0
    checkpoints: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    escapes: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    slowest: str = ""

    def take(self, what: str, act: Callable[[], str]) -> None:
        """Do it, and note what came of it and how long it took."""
        began = time.process_time()  # of this process: others may keep the machine busy
        try:
            self.outcomes[act()] += 1
        except Exception as error:
            self.escapes.append(f"{what}: {type(error).__name__}: {error}"[:300])
        taken = time.process_time() - began
        if taken > self.slowest_seconds:
            self.slowest_seconds, self.slowest = taken, what


def conversation(folder: Path) -> tuple[dict[str, str], list[bytes], list[tuple[bytes, Any]]]:
    """A site's config, the questions of a run, and its answers with how they are checked."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 15, 200).round()})
    frame["ward"] = rng.choice([*"abc"], 200)
    frame["race"], frame["died"] = rng.choice(["x", "y"], 200), rng.choice(["no", "yes"], 200)
    frame.to_csv(folder / "north.csv", index=False)
    config = {"name": "north", "table": str(folder / "north.csv"), "cache": str(folder / "cache")}
    terms = Terms("died", ("race",))
    hello = encode_message(Introduce(terms))
    answers = [reply_to(hello, config)]
    agreement = agree(terms, {"north": decode_answer(answers[0]).content})
    model = Linear(agreement.schema.n_features)
    rates = tuple(RateId("selection", "race", group) for group in ("x", "y"))
    setup = Setup(model, rates, (Difference("demographic_parity", "race", {"north": 0.05}),))
    weights = {"north": CurvatureWeights(0.5, np.array([0.1, -0.1]))}
    points = (
        Point(model.start(), "curvature", weights),
        Point(model.start() + 0.1, "gradients"),
        Point(model.start() - 0.1, "decisions", sharpness=30.0),
    )
    questions = [
        hello,
        encode_message(Ask(agreement, Evaluate(setup, Request(points)))),
        encode_message(Ask(agreement, Count(setup, model.start()))),
    ]
    answers += [reply_to(question, config) for question in questions[1:]]
    checks = [
        check_site_introduction,
        lambda name, said: check_reports(name, said, points, len(rates), of_rows=True),
        lambda name, said: check_counted(name, said, model.start(), rates, of_rows=True),
    ]
    return config, questions, list(zip(answers, checks, strict=True))


def mutate(message: bytes, rng: np.random.Generator) -> bytes:
    """The message with bytes changed, cut or added, or with a part of its tree replaced."""
    kind = rng.integers(5)
    if kind == 0:
        changed = bytearray(message)
        for _ in range(rng.integers(1, 4)):
            changed[rng.integers(len(changed))] = rng.integers(256)
        return bytes(changed)
    if kind == 1:
        cut = int(rng.integers(len(message)))
        return message[:cut] + bytes(rng.integers(0, 256, rng.integers(4), dtype=np.uint8))
    head, _, body = message.partition(b"\n")
    tree = msgspec.msgpack.decode(body)
    for _ in range(rng.integers(1, 3)):
        _mutate_tree(tree, rng)
    body = msgspec.msgpack.encode(tree)
    if kind == 4 and rng.integers(50) == 0:
        body = b"\x91" * int(rng.integers(100, 100_000)) + b"\xc0"
    return head + b"\n" + body


def _mutate_tree(tree: Any, rng: np.random.Generator) -> None:
    """Replace, remove, rename or repeat one part, anywhere in it."""
    places = []
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        keys: Any = list(part) if isinstance(part, dict) else range(len(part))
        for key in keys:
            places.append((part, key))
            if isinstance(part[key], (dict, list)):
                waiting.append(part[key])
    if not places:
        return
    part, key = places[rng.integers(len(places))]
    other, its_key = places[rng.integers(len(places))]
    choice = rng.integers(5)
    if choice == 0:
        del part[key]
    elif choice == 1 and isinstance(part, dict):
        part[str(STRANGE[rng.integers(len(STRANGE))])[:50]] = part.pop(key)
    elif choice == 2:
        part[key] = copy.deepcopy(other[its_key])
    else:
        part[key] = STRANGE[rng.integers(len(STRANGE))]


def fuzz_messages(folder: Path, count: int, seed: int, figures: Figures) -> None:
    """Questions to a site, whose answer must be readable; answers to the server's checks."""
    rng = np.random.default_rng(seed)
    config, questions, answers = conversation(folder)

    def ask(message: bytes) -> str:
        answer = decode_answer(reply_to(message, config))
        return f"question: {type(answer.content).__name__}"

    def file(message: bytes, check: Any) -> str:
        try:
            check_content(check, "north", decode_answer(message).content)
        except FCFLError as error:
            return f"answer: {type(error).__name__}"
        return "answer: accepted"

    for number in range(count):
        if number % 2:
            message = mutate(questions[rng.integers(len(questions))], rng)
            figures.take(f"question {number}", lambda message=message: ask(message))
        else:
            answer, check = answers[rng.integers(len(answers))]
            message = mutate(answer, rng)
            figures.take(
                f"answer {number}", lambda message=message, check=check: file(message, check)
            )
        figures.messages += 1


def fuzz_checkpoints(folder: Path, count: int, seed: int, figures: Figures) -> None:
    """Checkpoints with a right checksum around changed content, and without."""
    rng = np.random.default_rng(seed)
    method, params = SQP(), np.zeros(3)
    rates = tuple(RateId("selection", "race", group) for group in ("x", "y"))
    counts = {"north": (_a_report(params),)}
    problem, _ = build_problem((Difference("demographic_parity", "race", 0.05),), rates, counts)
    state, _ = method.step(method.init(params, problem), counts)
    save_checkpoint(folder, Progress(state))
    path = checkpoint_path(folder)
    head, _, content = path.read_bytes().partition(b"\n")

    def load() -> str:
        try:
            load_checkpoint(folder, SQPState)
        except FCFLError as error:
            return f"checkpoint: {type(error).__name__}"
        return "checkpoint: accepted"

    for number in range(count):
        changed = mutate(content, rng)
        path.write_bytes(head + b"\n" + changed if number % 10 == 0 else seal(changed))
        figures.take(f"checkpoint {number}", load)
        figures.checkpoints += 1


def _a_report(params: np.ndarray) -> Any:
    from fcfl._types import Report

    n = params.size
    groups, rates = np.array([60.0, 40.0]), np.array([0.5, 0.4])
    return Report(100.0, 0.7, groups, rates, np.ones(n), np.ones((2, n)), np.eye(n))


def fuzz(n_messages: int, n_checkpoints: int, seed: int = 0) -> Figures:
    """Everything in a folder that is thrown away."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as place:
        fuzz_messages(Path(place), n_messages, seed, figures)
        fuzz_checkpoints(Path(place), n_checkpoints, seed, figures)
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--checkpoints", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments or [])
    began = time.perf_counter()
    figures = fuzz(options.messages, options.checkpoints, options.seed)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(
        f"{figures.messages} messages and {figures.checkpoints} checkpoints in "
        f"{time.perf_counter() - began:.0f} s: {len(figures.escapes)} escapes, {memory:.0f} MB at "
        f"most, slowest {figures.slowest_seconds * 1000:.0f} ms of CPU ({figures.slowest})"
    )
    for outcome, times in sorted(figures.outcomes.items()):
        print(f"  {outcome}: {times}")
    for escape in figures.escapes[:20]:
        print(f"  ESCAPED {escape}")
    return int(bool(figures.escapes) or memory > MOST_MEMORY)


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
