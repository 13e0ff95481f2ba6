"""Command lines are kept without their secrets, and commits as git says."""

import subprocess
from pathlib import Path

import pytest

from tune_sentcl.store.provenance import git_commit, library_versions, mask_command, mask_text

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "words",
    [
        ["--token", SECRET],
        ["--hf-token", f"-{SECRET}"],
        [f"--token={SECRET}"],
        ["--api-key", SECRET],
        [f"--wandb_api_key={SECRET}"],
        [f"key={SECRET}"],
        [f"password={SECRET},{SECRET}&{SECRET}"],
        ["--env", f"A=1 HF_TOKEN={SECRET} B=2"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        [f"AWS_ANYTHING={SECRET}"],
        [f'{{"apiKey": "{SECRET}"}}'],
        ["-H", f"Authorization: Bearer {SECRET}"],
        [f"https://user:{SECRET}@host/x"],
        [f"https://{SECRET}@host/x"],
        [f"s3://KEY:a/{SECRET}@bucket/x"],
        [f"s3://bucket/x?secret_key={SECRET}&region=eu"],
    ],
)
def test_secrets_are_hidden(words: list[str]) -> None:
    masked = mask_command(["tune-sentcl", "run", *words])
    assert SECRET not in masked
    assert "HIDDEN" in masked
    assert masked.startswith("tune-sentcl run ")


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "method.divisor=tokens"],
        ["--max-tokens", "5"],
        ["--set", "method.lambda=0.3"],
        ["--study", "s3://bucket/keyboard?region=eu"],
        ["--study", "https://host:8080/x"],
        ["--token", "--verbose"],
        ["--set", "encoder.checkpoint=org/monkey:main"],
    ],
)
def test_the_rest_stays(words: list[str]) -> None:
    assert "HIDDEN" not in mask_command(["tune-sentcl", *words])


def test_what_follows_a_secret_in_a_url_stays() -> None:
    masked = mask_command(["s3://bucket/x?secret_key=a&region=eu"])
    assert "region=eu" in masked


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host/x",
        f"cannot open s3://KEY:a/{SECRET}@bucket/x: it is gone",
        f"GET https://host/x?part=1&token={SECRET}&region=eu: 404",
        f"wrong password: {SECRET}",
        f"no value: password={SECRET}",
        f'{{"apiKey": "{SECRET}"}}',
        f"api_key='{SECRET}'",
        f"key={SECRET}",
        f"HF_TOKEN={SECRET} is not valid",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"first\nsecret = {SECRET}\nlast",
        f"Invalid token hf_{SECRET}ABCDEFGHIJKLMNOP",
    ],
)
def test_secrets_in_prose_are_hidden(text: str) -> None:
    masked = mask_text(text)
    assert SECRET not in masked
    assert "HIDDEN" in masked
    assert mask_text(masked) == masked


TRACEBACK = """Traceback (most recent call last):
  File "/home/me/key=large/hf_hub_download_of_many.py", line 3, in load(token: str | None = None)
    key = keys[0]
    token = token
    password: str = getpass.getpass()
    config = {"key": key, "tokens": 3, "signature": signature(run)}
KeyError: 'x'
"""


@pytest.mark.parametrize(
    "text",
    [
        TRACEBACK,
        "KeyError: 'x'",
        "KeyError: 'pad_token'",
        "no such key: lambda. Did you mean method.lambda?",
        "Unexpected key: encoder.layer.11.output.dense.weight",
        "unknown token: [CLS] (tokenizer.pad_token = tokenizer.eos_token e.g.)",
        "cls_token=[CLS], key: layer_12, sig: 0.05",
        "key=model12, and key=12model",
        "method.divisor = tokens: must be one of padded, tokens",
        "https://host:8080/keyboard?region=eu",
        "https://host/list?sort=token&by=key",
        "s3://bucket/study: the disk must have free space",
        "org/monkey:main",
        "/data/run-1/key/secret.txt",
        "Expected 2e-05, got 1e-4: lr=1e-4, tau=0.05",
    ],
)
def test_ordinary_prose_is_left_as_it_is(text: str) -> None:
    assert mask_text(text) == text


def test_a_long_text_is_masked_in_no_time() -> None:
    text = "a" * 200_000
    assert mask_text(text) == text


def test_the_commit_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit() is None
    (tmp_path / "file").write_text("a")
    try:
        subprocess.run(["git", "init", "-q"], check=True)
    except FileNotFoundError:
        pytest.skip("there is no git here")
    subprocess.run(["git", "add", "file"], check=True)
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "-q", "-m", "x", "--no-verify"], check=True)
    commit = git_commit()
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "untracked").write_text("b")
    assert git_commit() == commit
    (tmp_path / "file").write_text("b")
    assert git_commit() == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None


def test_versions_name_the_libraries() -> None:
    assert {"python", "torch", "tune_sentcl"} <= set(library_versions())
