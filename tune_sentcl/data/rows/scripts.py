"""The scripts of texts, so that a few rows of another language are seen among a million."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.data.rows.kinds import text_column
from tune_sentcl.data.tables import Origin, holds_text

_RARE = 0.05
_SHOWN = 60
"""The share of texts below which rows are named, and the characters of a text that are shown."""

_SCRIPTS = (
    *("Latin", "Cyrillic", "Greek", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac"),
    *("Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada"),
    *("Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Khmer", "Ethiopic"),
    *("Mongolian", "Cherokee", "Thaana", "Tifinagh", "Nko", "Yi", "Han", "Hiragana", "Katakana"),
    *("Hangul", "Bopomofo", "Canadian_Aboriginal", "Javanese", "Balinese", "Sundanese"),
)
"""Unicode's names of the scripts of living languages, as RE2 knows them."""


def scripts(table: pa.Table, where: Origin) -> Iterator[str]:
    """Say in how many texts each script occurs, and in which rows a rare one.

    Every text is read; a million texts take about a second.

    Args:
        table: Rows as `open_source` gives them.
        where: Their origin.
    """
    columns = [text_column(table, n, where) for n in table.column_names if holds_text(n)]
    texts = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    total = pc.sum(pc.not_equal(texts, "")).as_py()
    found = {}
    for script in _scripts_among(texts):
        mask = pc.match_substring_regex(texts, rf"\p{{{script}}}")
        found[script] = np.flatnonzero(pc.fill_null(mask, False))
    order = sorted((s for s in found if len(found[s])), key=lambda script: -len(found[script]))
    common = [script for script in order if len(found[script]) >= _RARE * total]
    shares = [f"{script} in {len(found[script]) / total:.0%} of the texts" for script in common]
    yield f"scripts: {', '.join(shares) or 'none'}"
    for script in order[len(common) :]:
        places = found[script]
        text = texts[int(places[0])].as_py()
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        rows = np.unique(places % len(table)).tolist()
        count = f"{len(places):,} text{'s'[: len(places) - 1]}"
        yield f"{script} in {count}: {where.at(rows)} (one of them: {shown!r})"


def _scripts_among(texts: pa.ChunkedArray) -> list[str]:
    """The scripts of any letter in texts, found without a search of all texts for each script."""
    is_seen = np.zeros(0x110000, dtype=bool)
    is_seen[:0x80] = True
    others = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    for chunk in others.chunks:
        is_seen[np.frombuffer("".join(chunk.to_pylist()).encode("utf-32-le"), "<u4")] = True
    letters = pa.array(["".join(map(chr, np.flatnonzero(is_seen)))])
    return [s for s in _SCRIPTS if pc.match_substring_regex(letters, rf"\p{{{s}}}")[0].as_py()]
