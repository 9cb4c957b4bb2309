"""Faults that outside trials found and that no other test here is about."""

import pytest

from fcfl.sites.messages import Introduce, Refusal, Terms, decode_answer, encode_message
from fcfl.sites.site import reply_to
from hospital import stays
from in_one_process import hospitals, node_configs


@pytest.mark.parametrize(
    ("known", "forged"),
    [
        (b'"label":"died"', b'"label":1234'),
        (b'"sensitive":{"tuple":["race"]}', b'"sensitive":1'),
        (b'"positive":null', b'"positive":[[]]'),
        (b'"seed":0', b'"seed":1' + b"0" * 400),
        (b'"seed":0', b'"seed":{"tuple":[]}'),
    ],
    ids=str,
)
def test_the_error_handler_itself_does_not_fail_on_terms_that_are_none(tmp_path, known, forged):
    """Names in the question are kept in the sentence: they may be no names at all."""
    files = hospitals(tmp_path, stays(60, hospitals=("north",)))
    (config,) = node_configs(files, tmp_path).values()
    message = encode_message(Introduce(Terms("died", ("race",))))
    magic, _, rest = message.partition(b" ")
    size, _, body = rest.partition(b"\n")
    assert known in body
    body = body.replace(known, forged)
    length = b"%d" % (int(size) + len(forged) - len(known))
    answer = decode_answer(reply_to(magic + b" " + length + b"\n" + body, config))
    assert answer.name == "north" and isinstance(answer.content, Refusal)
    assert "Unexpected" not in answer.content.sentence
