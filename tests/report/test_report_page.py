"""The page: everything that matters is on it, and nothing on it reaches outside."""

import json
import re
from html.parser import HTMLParser

import pytest

from fcfl.errors import DataError
from fcfl.report.page import MAX_SHOWN, PAGE, write_comparison, write_page
from fcfl.results import read_run, short_names
from simulated import HISTORY, SWEEP, client, judged, result, two_clients, write

BAD_NAME = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Text, headings, attributes and whether every element is closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text):
        super().__init__()
        self.text, self.attributes, self.tags, self.open, self.headings = "", [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
            if self.open and self.open[-1] in ("h1", "h2", "h3"):
                self.headings.append(data.strip())


def page_of(path):
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    return page


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    return page_of(write_page(write(folder, two_clients(), HISTORY)))


def test_the_first_heading_is_the_verdict(full):
    assert full.headings[0].startswith("1 of 2 budgets shown to be met on held-out rows")


def test_every_section_and_figure_is_there(full):
    assert set(full.headings) >= {
        "Clients against their budgets", "Accuracy and disparity of each client",
        "Who pays for whose budget", "Path of training", "All verdicts",
        "All clients", "Groups and counts", "Settings, data, versions", "Intervals", "Notes",
    }  # fmt: skip
    ids = {value for name, value in full.attributes if name == "id"}
    for figure in ("strip-0-0", "scatter-0", "price-0", "path-loss", "path-violation", "rates-0-0"):
        assert f"{figure}-title" in ids
    assert "svg" in full.tags and "img" not in full.tags


def test_verdicts_are_words_beside_shapes(full):
    for word in ("undetermined", "met", "exceeded", "unconstrained"):
        assert word in full.text
    assert "verifiable from 0.190" in full.text
    classes = " ".join(value for name, value in full.attributes if name == "class")
    assert "mark v-undetermined" in classes and "mark v-met" in classes


def test_settings_checksum_versions_and_the_statement_are_told(full):
    for words in ("ab" * 32, "fcfl 0.0", "north=0.05", "Two-sided intervals that hold together."):
        assert words in full.text
    assert "--budget" in full.text and "--drop" not in full.text


def test_prices_name_who_pays_and_what_is_free(full):
    assert "0.01 more would lower it by about 0.004" in full.text
    assert "1 budget has no price" in full.text


def test_nothing_is_loaded_and_every_link_is_an_anchor_on_the_page(full):
    ids = {value for name, value in full.attributes if name == "id"}
    links = [value for name, value in full.attributes if name in ("href", "src", "action", "data")]
    assert links and all(link[0] == "#" and link[1:] in ids for link in links)
    assert not {"script", "link", "img", "iframe", "object", "image", "use"} & set(full.tags)
    policies = [v for n, v in full.attributes if n == "content" and "default-src" in v]
    assert len(policies) == 1 and policies[0].startswith("default-src 'none'; style-src")
    assert not [name for name, _ in full.attributes if name.startswith("on")]


def test_ids_are_unique_and_labels_point_to_them(full):
    ids = [value for name, value in full.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    labels = [v for name, v in full.attributes if name == "aria-labelledby"]
    assert all(set(value.split()) <= set(ids) for value in labels)
    assert full.tags.count("caption") == full.tags.count("table")
    assert full.tags.count("h1") == full.tags.count("main") == 1


def test_no_style_asks_for_anything_outside(tmp_path):
    text = write_page(write(tmp_path, two_clients())).read_text(encoding="utf-8")
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text and "@import" not in text
    for rule in ("prefers-color-scheme: dark", "@media print", "max-width"):
        assert rule in text


def test_names_are_shown_as_text(tmp_path):
    entry = judged(0.1, 0.0, 0.3, 0.2, "undetermined", attribute="<b>race</b>", price=0.2,
                   groups=((BAD_NAME, 30, 3), ("Zürich 東京 🏥", 24, 2)))  # fmt: skip
    content = result({BAD_NAME: client(entry), "Zürich 東京 🏥\x1b[31m": client(entry)})
    content["notes"] = [BAD_NAME]
    content["settings"] = {"budget": {BAD_NAME: 0.1}}
    path = write_page(write(tmp_path, content, HISTORY))
    page = page_of(path)
    assert "script" not in page.tags
    assert BAD_NAME in page.text and "<b>race</b>" in page.text and "Zürich 東京 🏥" in page.text
    assert "<script" not in path.read_text(encoding="utf-8")
    assert "\x1b" not in path.read_text(encoding="utf-8")


def test_many_clients_are_cut_in_the_picture_and_whole_in_the_table(tmp_path):
    clients = {
        f"client-{i:03d}": client(judged(i / 1000, 0.0, i / 500, 0.1, "undetermined"))
        for i in range(200)
    }
    page = page_of(write_page(write(tmp_path, result(clients))))
    ids = {value for name, value in page.attributes if name == "id"}
    assert f"strip-0-{MAX_SHOWN - 1}-title" in ids and f"strip-0-{MAX_SHOWN}-title" not in ids
    assert f"The {MAX_SHOWN} worst of 200" in page.text
    for name in clients:
        assert page.text.count(name) >= 3


def test_a_run_without_held_out_rows_or_labels_still_has_a_page(tmp_path):
    content = two_clients()
    for who in [*content["clients"].values(), content["global"]]:
        if "rows" in who:
            who["rows"]["test"] = 0
        nothing = dict.fromkeys(who["test"], None) | {"disparities": []}
        who["test"] = nothing
    page = page_of(write_page(write(tmp_path / "a", content)))
    assert page.headings[0].endswith("1 has too few people to tell.")
    assert "training rows" in page.headings[0]
    blind = two_clients(method="audit", rounds={}, worst_client=dict.fromkeys(
        ("name", "train_loss", "test_accuracy")))  # fmt: skip
    for who in [*blind["clients"].values(), blind["global"]]:
        who["test"] |= {"accuracy": None, "accuracy_interval": None}
    page = page_of(write_page(write(tmp_path / "b", blind)))
    assert "Accuracy and disparity of each client" not in page.headings


def test_the_headline_of_a_sweep_is_the_trade_off(tmp_path):
    page = page_of(write_page(write(tmp_path, two_clients(), HISTORY, [*reversed(SWEEP)])))
    assert page.headings[0].startswith("From budget 0.1 to 0.01")
    for words in (
        "keep 2 of 3 budgets",
        "people to compare: north",
        "budget-0.05/report.html",
    ):
        assert words in page.text


def test_a_sweep_alone_has_a_page(tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps({"points": SWEEP}))
    page = page_of(write_page(tmp_path))
    assert "Trade-off" in page.headings and "budget-0.05" in page.text


def test_a_page_can_go_elsewhere_and_drawing_twice_gives_the_same(tmp_path):
    folder = write(tmp_path / "run", two_clients(), HISTORY)
    first = write_page(folder).read_bytes()
    assert write_page(folder) == folder / PAGE
    assert (folder / PAGE).read_bytes() == first
    assert write_page(folder, tmp_path / "new" / "mail.html").read_bytes() == first
    assert write_page(folder, tmp_path / "there") == tmp_path / "there" / PAGE
    assert not list(tmp_path.rglob("*.draft"))


def test_runs_are_compared_on_one_page(tmp_path):
    one = write(tmp_path / "one", two_clients())
    other = two_clients(method="fedavg", settings={"table": "stays.csv", "method": "fedavg"})
    two = write(tmp_path / "two", other)
    page = page_of(write_comparison([one, two], tmp_path / "both.html"))
    assert page.headings[0] == "2 runs compared"
    assert "Settings that differ" in page.headings
    assert "use different rows" not in page.text
    assert re.search(r"north\s*one", page.text) and re.search(r"north\s*two", page.text)
    other["data"]["sha256"] = "cd" * 32
    write(tmp_path / "two", other)
    page = page_of(write_comparison([one, two], tmp_path))
    assert "use different rows" in page.text


# --- folders that cannot be read -------------------------------------------------------------


def test_folders_have_short_names_that_differ(tmp_path):
    a, b = tmp_path / "x" / "run", tmp_path / "y" / "run"
    assert short_names([a, b]) == ["x/run", "y/run"]
    assert short_names([a, tmp_path / "z"]) == ["run", "z"]
    with pytest.raises(DataError, match="twice"):
        short_names([a, a])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "There is no result in"),
        ('{"method": "sqp",', "result.json' cannot be read"),
        ("[1]", "result.json' cannot be read"),
        ('{"method": "sqp", "clients": {}}', "status"),
    ],
)
def test_a_folder_without_a_result_is_told(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    with pytest.raises(DataError, match=sentence):
        write_page(tmp_path)
    assert not (tmp_path / PAGE).exists()


def test_a_torn_history_is_shown_up_to_the_tear(tmp_path):
    write(tmp_path, two_clients(), HISTORY)
    with open(tmp_path / "history.jsonl", "a") as file:
        file.write('{"round": 6, "sta')
    assert len(read_run(tmp_path).history) == 5
