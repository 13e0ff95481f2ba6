"""No URL with credentials is taken, and no environment variable is stored."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from search_samples import LAMBDA, lambda_space, run_here, tiny_space

from tune_sentcl.errors import ConfigError, refuse_credentials
from tune_sentcl.space import Space
from tune_sentcl.store.study import Study

SECRET = "s3cr3tABC987xyz"
URLS = (
    *(f"file://me:{SECRET}@localhost/tmp/study", f"gs://{SECRET}@bucket/study"),
    *(f"s3://KEY:a/{SECRET}@bucket/study", f"https://host/x.csv?part=1&token={SECRET}"),
    *(f"https://host/x#{SECRET}", f"s3://KEY:12/{SECRET}@bucket/study"),
)


def ranged(folder: Path, url: str) -> Space:
    choices = f"data.source = {{ choices = ['toy', {json.dumps(url)}] }}\n{LAMBDA}"
    return lambda_space(folder, 0.3, ranges=choices, fixed='evaluation.data = "toy"')


@pytest.mark.parametrize("url", URLS)
def test_a_url_with_credentials_is_refused_wherever_it_is_given(tmp_path: Path, url: str) -> None:
    space, study = lambda_space(tmp_path / "space", 0.3), tmp_path / "study"
    ways: dict[str, Callable[[], object]] = {
        "study": lambda: run_here(space, url),  # type: ignore[arg-type]  # a URL, not a folder
        "learn_from": lambda: run_here(space, study, learn_from=(url,)),
        "data.source": lambda: space.with_overrides({"data.source": ["toy", url]}),
        "encoder.checkpoint": lambda: space.with_overrides({"encoder.checkpoint": url}),
        "evaluation.own": lambda: space.with_overrides({"evaluation.own": [f"mine={url}"]}),
        "grid": lambda: tiny_space(tmp_path, f"grid.data.source = [{json.dumps(url)}]"),
        "range": lambda: ranged(tmp_path, url),
    }
    for place, act in ways.items():
        with pytest.raises(ConfigError, match="no user, password, query") as caught:
            act()
        assert SECRET not in str(caught.value), place
        assert len(str(caught.value).splitlines()) == 1, place
    assert not study.exists()


@pytest.mark.parametrize(
    "text",
    [
        *("s3://bucket/me@here/study", "http://[::1]:8265", "https://host:8080/x@1", "org/a@main"),
        *("['s3://bucket:9000', 'x']", "a folder/what?", "file:///C:/a b@c"),
    ],
)
def test_another_text_is_taken(text: str) -> None:
    refuse_credentials("a test", "", text)


def test_no_environment_variable_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, f"{SECRET}{name}")
    words = ["tune-sentcl", "search", "tiny", "--set", "data.source=toy + a b.csv"]
    monkeypatch.setattr(sys, "argv", words)
    space = lambda_space(tmp_path / "space", 0.3, fixed='evaluation.data = "toy"')
    assert run_here(space, tmp_path / "study").ran == 1
    study = Study.read(tmp_path / "study")
    tables = [t.to_pylist() for t in (study.trials(), study.scores(), study.curves())]
    files = [p.read_bytes() for p in (tmp_path / "study").rglob("*") if p.is_file()]
    assert len(files) > 4 and all(tables)
    assert SECRET not in str(tables)
    assert not any(SECRET.encode() in data for data in files)
    assert study.manifest.commands == (
        "tune-sentcl search tiny --set 'data.source=toy + a b.csv'",
    )
