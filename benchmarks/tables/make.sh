#!/bin/sh
# Makes the tables of this folder from trials that it runs in FOLDER, one at a time, in about three hours of
# CPU time. It needs TUNE_SENTCL_DATA with STS-B and the rows of SNLI. Repeat it after an interruption.
#
#     benchmarks/tables/make.sh FOLDER
set -e
tables=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
python "$tables/search.py" clsr
python "$tables/search.py" pairs
python "$tables/from_study.py" "$tables/clsr.toml" 10 "$tables/clsr.parquet" clsr-*
python "$tables/from_study.py" "$tables/pairs.toml" 5 "$tables/pairs.parquet" pairs-*
python "$tables/search.py" retrieval
python "$tables/search.py" similarity
python "$tables/from_study.py" "$tables/retrieval.toml" 16 "$tables/retrieval.parquet" retrieval-*
python "$tables/from_study.py" "$tables/similarity.toml" 16 "$tables/similarity.parquet" similarity-*
