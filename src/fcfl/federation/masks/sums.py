"""The server's part in masked sums: it forwards sealed shares and opens sums."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from secrets import token_bytes, token_hex
from typing import Any, TypeAlias

import numpy as np

from fcfl._checks import check_curvature_sum
from fcfl._types import (
    ClientId,
    CurvatureWeights,
    Point,
    Request,
    SummedReports,
    Vector,
    without_curvature,
)
from fcfl.client.client import Client, Evaluate, OnRows
from fcfl.errors import AbsentClientError, FCFLError, ReportError
from fcfl.federation.federation import Check, CheckReports
from fcfl.federation.journal import Journal
from fcfl.federation.masks.arithmetic import SHARE_BYTES, WORDS, Words, decode_numbers, join_shares
from fcfl.federation.masks.hidden import (
    Columns,
    carrier_of,
    is_hidden,
    n_hidden,
    restore,
    summed_rates,
    weights_by_row,
)
from fcfl.federation.masks.holder import (
    WEIGHT_RANGE,
    MaskHolder,
    MaskJournal,
    answer_masked,
    commitment,
    derive,
    pair_masks,
    public_of,
    rates_size,
    stream,
)
from fcfl.federation.masks.messages import (
    MaskedAnswer,
    MaskedAsk,
    MaskQuestion,
    PrepareMasks,
    Revealed,
    SumKey,
    SumTerms,
    Unmask,
)
from fcfl.policy import MaskPolicy

_SEALED = SHARE_BYTES + 16  # a share and its tag

AskAll: TypeAlias = Callable[[MaskQuestion, Check], Mapping[ClientId, Any]]
AskSome: TypeAlias = Callable[
    [MaskQuestion, Check, Sequence[ClientId], int], Mapping[ClientId, Any]
]


def usual_threshold(n_clients: int) -> int:
    """More than two thirds of the clients.

    A server that tells some clients that one has dropped out and others that it has not gets
    enough of neither kind of share, even together with a third of the clients.
    """
    return 2 * n_clients // 3 + 1


class MaskedSums:
    """The sums of one run. ``ask`` asks all clients, ``ask_some`` until enough have answered.

    With ``needs_all`` a sum that some client is missing from is not opened: whoever asked cannot go
    on without it, and asks again when it is back; sums with and without it would tell its part.
    """

    def __init__(
        self, terms: SumTerms, ask: AskAll, ask_some: AskSome, *, needs_all: bool = True
    ) -> None:
        self._terms, self._ask, self._ask_some = terms, ask, ask_some
        self._needs_all = needs_all
        self._keys: dict[ClientId, SumKey] = {}
        self._rows: dict[Hashable, Vector] = {}  # of all clients, behind rates that are summed

    def report(self, question: Evaluate, check: CheckReports) -> SummedReports:
        """Ask for reports under masks, and open the sums of curvatures and of global rates."""
        points = question.request.points
        bare = without_curvature(points)

        def check_bare(name: ClientId, answer: Any) -> None:
            check(name, answer, bare)
            if any(report.curvature is not None for report in answer):
                raise ReportError(f"Client {name!r} sent its curvature without masks.")

        columns = summed_rates(question.setup)
        if columns.size:
            self._learn_rows(question, check, columns)
        answers, total = self._sum(question, check_bare)
        if total is None:
            return SummedReports(answers, (None,) * len(points))
        reports, sums = restore(question, answers, total)
        for matrix in sums:
            if matrix is not None:
                check_curvature_sum(matrix)
        if columns.size:
            for point, report in zip(points, reports[carrier_of(reports)], strict=True):
                self._rows[_about(question, point)] = report.group_counts[columns]
        return SummedReports(reports, sums)

    def ask(self, question: OnRows, check: Check) -> dict[ClientId, Any]:
        """Ask for counts, and open the sums of those that no rule compares at a client."""
        answers, total = self._sum(question, check)
        assert total is not None  # else somebody was missed by name
        return restore(question, answers, total)[0]

    def _learn_rows(self, question: Evaluate, check: CheckReports, columns: Columns) -> None:
        """How many rows all clients have behind summed rates: curvature is weighted by them."""
        for point in question.request.points:
            if point.want == "curvature" and _about(question, point) not in self._rows:
                asked = Request((Point(point.params),))
                self.report(replace(question, request=asked), check)

    def _sum(self, question: OnRows, check: Check) -> tuple[dict[ClientId, Any], Vector | None]:
        """Everybody's answer without what is summed, and the sum; None where it stays closed."""
        self._prepare()
        asked, self._keys = self._question(question), {}  # clients refuse a key they have seen
        said: Mapping[ClientId, MaskedAnswer] = self._ask(
            asked, lambda name, answer: self._check_masked(name, answer, asked, check)
        )
        self._keys = {name: answer.next_key for name, answer in said.items()}
        names = self._terms.names
        answers = {name: one.answer for name, one in said.items()}
        in_sum = {name: said[name] for name in asked.sum_keys if name in said}
        if len(in_sum) < len(names) and summed_rates(question.setup).size:
            self._keys = {}
            missing = ", ".join(repr(name) for name in names if name not in in_sum)
            raise AbsentClientError(
                f"A rule over all rows together needs every client's part of a sum; missing: "
                f"{missing}. Resume when they are back."
            )
        if self._needs_all and len(in_sum) < len(names):
            self._keys = {}  # all must give one
            return answers, None
        return answers, decode_numbers(self._open(asked, in_sum))

    def _prepare(self) -> None:
        """Ask for keys where they are not enough: at first, and after too many were absent."""
        names = self._terms.names
        needed = len(names) if self._needs_all else self._terms.threshold
        if len(self._keys) >= needed:
            return
        said = self._ask(PrepareMasks(self._terms), self._check_key)
        self._keys = {name: said[name] for name in names if name in said}
        if len(self._keys) < needed:
            missing = ", ".join(repr(name) for name in names if name not in said)
            raise AbsentClientError(
                f"Masked sums need keys of {needed} clients, and {len(self._keys)} gave theirs; "
                f"missing: {missing}. Resume when they are back."
            )

    def _question(self, question: OnRows) -> MaskedAsk:
        if not isinstance(question, Evaluate):
            return MaskedAsk(question, self._terms, dict(self._keys))
        columns = summed_rates(question.setup)
        points, least = [], []
        for point in question.request.points:
            if point.want == "curvature":
                weights, bound = level_weights(point.curvature_weights or {}, columns)
                if columns.size:
                    weights = weights_by_row(weights, columns, self._rows[_about(question, point)])
                point = replace(point, curvature_weights=weights)
                least.append(bound)
            points.append(point)
        levelled = replace(question, request=Request(tuple(points)))
        return MaskedAsk(levelled, self._terms, dict(self._keys), tuple(least))

    def _open(self, asked: MaskedAsk, in_sum: Mapping[ClientId, MaskedAnswer]) -> Words:
        """The sum of the words without masks, by the shares of enough clients."""
        about = asked.sum_digest
        dropped = {n: key for n, key in asked.sum_keys.items() if n not in in_sum}
        question = Unmask(
            self._terms, about, {n: said.self_shares for n, said in in_sum.items()}, dropped
        )
        members, needed = set(asked.sum_keys), self._terms.threshold
        revealed: Mapping[ClientId, Revealed] = {}
        if len(in_sum) >= needed:
            revealed = self._ask_some(
                question,
                lambda name, answer: _check_revealed(name, answer, members),
                tuple(in_sum),
                needed,
            )
        if len(revealed) < needed:
            helped = revealed if len(in_sum) >= needed else in_sum
            missing = [repr(name) for name in self._terms.names if name not in helped]
            raise AbsentClientError(
                f"The masked sum needs {needed} clients to be opened, and {len(helped)} answered; "
                f"missing: {', '.join(missing)}. Resume when they are back."
            )
        helpers = list(revealed.items())[:needed]
        numbers = {name: i for i, name in enumerate(self._terms.names, start=1)}
        secrets = {
            member: _join(member, {numbers[n]: said.shares[member] for n, said in helpers})
            for member in asked.sum_keys
        }
        return _without_masks(asked, in_sum, secrets)

    def _check_key(self, name: ClientId, key: Any) -> None:
        valid = isinstance(key, SumKey) and _is_hex(key.public, 64) and len(key.nonce) <= 64
        if not (valid and _are_shares(key.shares, self._terms.names, _SEALED)):
            raise ReportError(f"Client {name!r} sent invalid keys for a masked sum.")

    def _check_masked(self, name: ClientId, said: Any, asked: MaskedAsk, check: Check) -> None:
        if not isinstance(said, MaskedAnswer):
            raise ReportError(f"Client {name!r} sent {type(said).__name__}, expected masked ones.")
        check(name, said.answer)
        if not is_hidden(asked.question, said.answer):
            raise ReportError(f"Client {name!r} sent counts without masks that are summed.")
        self._check_key(name, said.next_key)
        size = WORDS * n_hidden(asked.question) if name in asked.sum_keys else 0
        shared = self._terms.names if size else ()
        valid = said.words.shape == (size,) and _are_shares(said.self_shares, shared, _SEALED)
        if not valid or (size and not _is_hex(said.commitment, 64)):
            raise ReportError(f"Client {name!r} sent an invalid part of a masked sum.")


def level_weights(
    weights: Mapping[ClientId, CurvatureWeights], together: Columns | None = None
) -> tuple[dict[ClientId, CurvatureWeights], float]:
    """Weights of which none stands apart, and the least of a loss: smaller ones are raised to it.

    A step's curvature need not be exact; a client whose weight is many times that of all others
    would be alone in the sum, and refuses. Of rates that are summed ``together`` a client may
    have all rows: the server does not know.
    """
    sizes = [rates_size(one) for one in weights.values()]
    if together is not None and together.size:
        carried = [float(np.abs(one.rates[together]).sum()) for one in weights.values()]
        sizes = [size - own + sum(carried) for size, own in zip(sizes, carried, strict=True)]
    least = max(*(one.loss for one in weights.values()), *sizes) / WEIGHT_RANGE
    raised = {name: replace(one, loss=max(one.loss, least)) for name, one in weights.items()}
    return raised, least


def _without_masks(
    asked: MaskedAsk,
    in_sum: Mapping[ClientId, MaskedAnswer],
    secrets: Mapping[ClientId, bytes],
) -> Words:
    """Subtract the self-masks of who answered, and the masks that the others left behind."""
    about = asked.sum_digest
    publics = {name: asked.sum_keys[name].public for name in in_sum}
    total = np.sum([said.words for said in in_sum.values()], axis=0, dtype=np.uint64)
    for name, secret in secrets.items():
        if name in in_sum:
            fits = commitment(secret) == in_sum[name].commitment
            mask = stream(derive(secret, "self", about), total.size)
            total = total - mask
        else:
            fits = public_of(secret) == asked.sum_keys[name].public
            total = total + pair_masks(name, secret, publics, about, total.size)
        if not fits:
            raise FCFLError(_do_not_fit(name))
    return np.asarray(total)


def _join(name: ClientId, shares: Mapping[int, Any]) -> bytes:
    try:
        return join_shares({number: share.tobytes() for number, share in shares.items()})
    except ValueError:
        raise FCFLError(_do_not_fit(name)) from None


def _do_not_fit(name: ClientId) -> str:
    return (
        f"The shares for client {name!r} of a masked sum do not fit what it sent: some client gave "
        "a wrong one. Resume to ask again; if it comes back, train without that client."
    )


def _about(question: Evaluate, point: Point) -> Hashable:
    """Names the rows that a report is on."""
    return question.setup.rates, question.setup.min_group_rows


def _check_revealed(name: ClientId, said: Any, members: set[ClientId]) -> None:
    if not (isinstance(said, Revealed) and _are_shares(said.shares, members, SHARE_BYTES)):
        raise ReportError(f"Client {name!r} sent invalid shares of a masked sum.")


def _are_shares(shares: Mapping[ClientId, Any], names: Any, size: int) -> bool:
    return set(shares) == set(names) and all(one.shape == (size,) for one in shares.values())


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and not set(text) - set("0123456789abcdef")


def mask_in_process(
    clients: Mapping[ClientId, Client],
    threshold: int | None,
    on_exchange: Callable[[], None] = lambda: None,
) -> MaskedSums:
    """Masked sums over clients of this process, with keys that it forgets.

    ``on_exchange`` is called before each request.
    """
    holders = {
        name: MaskHolder(name, token_bytes(32), MaskJournal(Journal()), MaskPolicy())
        for name in clients
    }
    keys = {name: holder.public for name, holder in holders.items()}
    terms = SumTerms(token_hex(16), threshold or usual_threshold(len(keys)), keys)

    def ask(question: MaskQuestion, check: Check) -> dict[ClientId, Any]:
        return ask_some(question, check, tuple(clients), len(clients))

    def ask_some(
        question: MaskQuestion, check: Check, names: Sequence[ClientId], enough: int
    ) -> dict[ClientId, Any]:
        on_exchange()
        answers = {}
        for name in names[:enough]:
            own = question.for_client(name)
            if isinstance(own, MaskedAsk) and isinstance(question, MaskedAsk):
                own = replace(own, question=question.question)  # one setup: rows are kept for it
            answers[name] = answer_masked(clients[name], holders[name], own)
            check(name, answers[name])
        return answers

    return MaskedSums(terms, ask, ask_some)
