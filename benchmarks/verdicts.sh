#!/bin/bash
# Prints judge's verdicts on a study, and its averages beside a paper's printed ones, as a page shows them.
#
#     benchmarks/verdicts.sh STUDY [PAPER TABLE...]
set -euo pipefail
export COLUMNS=100
echo
echo '```'
echo "tune-sentcl judge ${1##*/}"
verdicts=$(tune-sentcl judge "$1") || [[ $? == [13] && $verdicts ]] # these exit codes are verdicts
echo "$verdicts"
for table in "${@:3}"; do
    echo
    tune-sentcl verify "$1" --paper "$2" --table "$table" |
        grep -E '^ *paper +ours|^ ?[A-Za-z]|^  (avg|STS-B-dev) ' | sed 's/ *\[[][0-9]*$//'
done
echo '```'
