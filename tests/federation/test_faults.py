"""Faults that outside trials found and that no other test here is about."""

import msgspec
import pytest

from fcfl.sites.messages import Introduce, Refusal, Terms, decode_answer, encode_message
from fcfl.sites.site import reply_to
from hospital import stays
from in_one_process import hospitals, node_configs


@pytest.mark.parametrize(
    "forged",
    [{"label": 1234}, {"sensitive": 1}, {"positive": [[]]}, {"seed": -1}, {"seed": []}],
    ids=str,
)
def test_the_error_handler_accepts_forged_terms(tmp_path, forged):
    """Names in the question are kept in the sentence: they may be no names at all."""
    files = hospitals(tmp_path, stays(60, hospitals=("north",)))
    (config,) = node_configs(files, tmp_path).values()
    head, _, body = encode_message(Introduce(Terms("died", ("race",)))).partition(b"\n")
    message = msgspec.msgpack.decode(body)
    message["terms"] |= forged
    answer = decode_answer(reply_to(head + b"\n" + msgspec.msgpack.encode(message), config))
    assert answer.name == "north" and isinstance(answer.content, Refusal)
    assert "Unexpected" not in answer.content.sentence
