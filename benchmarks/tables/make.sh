#!/bin/sh
# Makes the tables of this folder from trials that it runs in FOLDER, one at a time, in about an hour of CPU
# time. It needs TUNE_SENTCL_DATA with STS-B and snli_train_partial.parquet. Repeat it after an interruption.
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
