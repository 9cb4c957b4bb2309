"""Over sites `train` does what it does in one process, to the last bit: through real messages."""

from dataclasses import replace

import pytest

from fcfl import train
from fcfl.client.client import LocalClient
from fcfl.errors import FCFLError
from fcfl.federation.federation import Federation
from fcfl.methods.registry import METHODS
from fcfl.methods.sqp import SQP
from fcfl.models.linear import Linear
from fcfl.rules import Difference
from fcfl.runs.site_config import FOR_SITES
from fcfl.sites.messages import Terms
from fcfl.sites.named_module import NamedModule
from fcfl.sites.remote import RemoteFederation
from fcfl.sites.rows import open_rows
from fcfl.sites.settings import SiteSettings
from fcfl.sites.transport import InProcessTransport
from hospital import stays
from in_one_process import hospitals, node_configs, open_policy

NAMES = ("north", "south")
TERMS = Terms("died", ("race",))
RULES = (Difference("demographic_parity", "race", 0.1),)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same rows as sites behind messages, and as clients of this process."""
    folder = tmp_path_factory.mktemp("sites")
    files = hospitals(folder, stays(400, hospitals=NAMES))
    configs = node_configs(files, folder)
    open_policy(folder, 'modules = ["small_networks:mlp", "small_networks:no_module"]\n')
    sites = RemoteFederation(InProcessTransport(configs), NAMES, TERMS)
    agreement = sites.agreement
    clients = {}
    for config in configs.values():
        table = open_rows(SiteSettings.from_node_config(config), TERMS)
        rows = table.encode(agreement.schema, agreement.levels, agreement.labels)
        clients[table.name] = LocalClient(table.name, rows.train[table.name], rows.test[table.name])
    return sites, Federation(clients)


def short(name):
    method = METHODS[name].method()
    if hasattr(method, "curvature"):
        return replace(method, rounds=(8, 4))
    rounds = method.rounds
    return replace(method, rounds=(6, 4) if isinstance(rounds, tuple) else 6)


def trained(federation, model, **options):
    given = {"l2": 0.003, "confidence": 0.0, "starts": 1, **options}
    return train(federation, model, RULES, **given)


def assert_same(sites, clients, model, **options):
    one, other = (trained(where, model, **options) for where in (sites, clients))
    assert one.params.tobytes() == other.params.tobytes()
    assert one.status == other.status
    for name in NAMES:
        assert one.evaluations.test[name].loss_sum == other.evaluations.test[name].loss_sum
    return one


@pytest.mark.parametrize("name", FOR_SITES)
def test_every_method_ends_at_the_same_bits(both, name):
    sites, clients = both
    assert_same(sites, clients, Linear(sites.agreement.schema.n_features), method=short(name))


@pytest.mark.parametrize("name", ["fedavg", "q-ffl"])
def test_batches_are_drawn_the_same_at_sites_as_in_process(both, name):
    sites, clients = both
    method = replace(short(name), local_epochs=2, batch_rows=32)
    model = Linear(sites.agreement.schema.n_features)
    ended = assert_same(sites, clients, model, method=method)
    whole = trained(clients, model, method=replace(method, batch_rows=0))
    assert ended.params.tobytes() != whole.params.tobytes()


@pytest.mark.parametrize("options", [{"relative_budget": 0.5}, {"confidence": 0.9}], ids=str)
def test_relative_budgets_and_margins_end_at_the_same_bits(both, options):
    sites, _ = both
    rules = () if "relative_budget" in options else RULES
    rules = rules or (Difference("demographic_parity", "race"),)
    model = Linear(sites.agreement.schema.n_features)
    given = {"l2": 0.003, "starts": 1, "method": SQP("max", rounds=(8, 4)), **options}
    given.setdefault("confidence", 0.0)
    one, other = (train(where, model, rules, **given) for where in both)
    assert one.params.tobytes() == other.params.tobytes()


def test_an_installed_module_is_trained_to_the_same_bits(both):
    pytest.importorskip("torch")
    sites, clients = both
    model = NamedModule("small_networks:mlp", sites.agreement.schema.n_features, {"hidden": 5}, 3)
    one = assert_same(sites, clients, model, method=SQP(rounds=(6, 3)))
    assert one.params.size == 5 * (sites.agreement.schema.n_features + 1) + 6
    again = NamedModule(model.path, model.n_features, {"hidden": 5}, 3)
    assert again.start().tobytes() == model.start().tobytes()
    assert again.start().tobytes() != replace(again, seed=4).start().tobytes()


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("small_networks:absent", "is not installed"),
        ("no_such_package:x", "is not installed"),
        ("small_networks:no_module", "must make a torch module, got a int"),
    ],
)
def test_a_path_without_a_module_is_an_error(path, sentence):
    pytest.importorskip("torch")
    with pytest.raises(FCFLError, match=sentence):
        NamedModule(path, 3).start()


def test_choosing_at_the_sites_chooses_the_same(both):
    sites, _ = both
    model = Linear(sites.agreement.schema.n_features)
    given = {"objective": "auto", "l2": "auto", "confidence": 0.0, "starts": 1}
    one, other = (train(where, model, RULES, **given) for where in both)
    assert len(one.selection.table) == 10
    assert one.l2 == other.l2 and one.selection == other.selection
    assert one.params.tobytes() == other.params.tobytes()
