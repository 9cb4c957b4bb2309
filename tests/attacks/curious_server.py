"""A server that asks one site, over the real messages and unmodified site code, what it likes."""

import numpy as np
import pandas as pd

from fcfl._types import RateId
from fcfl.client.client import Count, Setup
from fcfl.data import Schema
from fcfl.models.linear import Linear
from fcfl.sites.messages import (
    Agreement,
    Ask,
    Introduce,
    Terms,
    decode_answer,
    encode_message,
)
from fcfl.sites.site import reply_to

TERMS = Terms("died", ("race",), test_size=0.3)


def patients():
    """Three hundred rows; every age occurs once."""
    rng = np.random.default_rng(0)
    age = rng.permutation(np.linspace(20.0, 94.75, 300))
    race = np.where(np.arange(300) < 10, "rare", np.where(np.arange(300) < 160, "black", "white"))
    died = np.where(rng.random(300) < 0.4, "yes", "no")
    return pd.DataFrame({"age": age, "race": race, "died": died})


class CuriousServer:
    """Asks one site what it likes, over the real messages."""

    def __init__(self, folder, policy=None, frame=None):
        self.frame = patients() if frame is None else frame
        self.frame.to_csv(folder / "north.csv", index=False)
        self.config = {"name": "north", "table": str(folder / "north.csv")}
        self.config["cache"] = str(folder / "cache")
        if policy is not None:
            (folder / "policy.toml").write_text(policy)
            self.config["policy"] = str(folder / "policy.toml")
        said = self.ask(Introduce(TERMS))
        schema = Schema.from_statistics({"north": said.statistics})
        levels = {"race": said.levels["race"]}
        self.said = said
        self.agreement = Agreement(TERMS, ("no", "yes"), levels, schema, {"north": said.checksum})

    def ask(self, question):
        return self.send(encode_message(question))

    def send(self, message):
        """What the site answers to bytes, forged or not."""
        return decode_answer(reply_to(message, self.config)).content

    def setup(self, *kinds):
        groups = self.agreement.levels["race"]
        rates = tuple(RateId(kind, "race", group) for kind in kinds for group in groups)
        return Setup(Linear(self.agreement.schema.n_features), rates)

    def older_than(self, threshold):
        """A model that selects exactly the rows above an age."""
        age = self.said.statistics.columns["age"]
        scale = np.sqrt(age.m2 / age.n)
        return np.array([1.0, -(threshold - age.mean) / scale])

    def count(self, params, kinds=("selection",)):
        return self.ask(Ask(self.agreement, Count(self.setup(*kinds), params)))
