"""Files that a suite needs and the data root lacks."""

from pathlib import Path

import pytest
from own_samples import write_lines, write_pairs
from search_samples import lambda_space

from tune_sentcl.space import load_space
from tune_sentcl.tuning.prepare import prepare
from tune_sentcl.tuning.search_options import SearchOptions

WHOLE = """
evaluation.data = "root"
evaluation.suites = ["sts", "transfer"]
evaluation.protocols = ["cosine", "senteval-5fold", "scl-paper-compat"]
"""


def test_a_source_that_only_a_range_names_is_spoken_of_before_the_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lambda_space(tmp_path, 0.3, fixed='evaluation.data = "toy"').text
    ranges = '[search.ranges]\ndata.source = { choices = ["toy", "snli"] }\n'
    head, _, _ = file.partition("[search.ranges]")
    (tmp_path / "ranged.toml").write_text(head + ranges)
    (tmp_path / "root").mkdir()
    options = SearchOptions(launcher="local", trials=1)
    prepare(load_space(tmp_path / "ranged.toml"), tmp_path / "root", None, options)
    said = capsys.readouterr().err
    assert said.count("of the ranges, data.source = snli is left out: ") == 1
    assert "data.source = toy is left out" not in said


def test_files_that_are_missing_are_named_once_before_the_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("pos", 2407), ("neg", 1368)):
        write_lines(tmp_path / f"root/downstream/CR/custrev.{name}", ["a phone"] * count)
    pairs = [(f"a {n}", f"b {n}", float(n % 5)) for n in range(20)]
    own = f'evaluation.own = ["mine={write_pairs(tmp_path / "dev.tsv", pairs)}"]\n'
    space = lambda_space(tmp_path, 0.3, 0.6, fixed=own + WHOLE.replace('"sts", ', ""))
    asked = SearchOptions(launcher="local")
    prepare(space, tmp_path / "root", None, asked)
    said = capsys.readouterr().err
    for name in ("MRPC", "MR", "SUBJ"):
        assert said.count(f"{name} is not measured: ") == 1
    assert said.count("msr_paraphrase_train.txt: the file does not exist") == 1
    assert "CR is not measured" not in said
