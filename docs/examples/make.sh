#!/bin/sh
# The studies behind the reports of this folder: run it in an empty folder, with TUNE_SENTCL_DATA set. About two
# hours on 2 cores. The encoder is all-MiniLM-L6-v2; rows and sets are real, but few rows: the scores are no paper's.
set -e
SMALL='--set encoder.checkpoint=minilm --set evaluation.suites=["sts"] --set evaluation.protocols=cosine --keep 0'
tune-sentcl search scl/lambda --study scl-lambda $SMALL --confirm 3 \
  --set encoder.share_duplicates=true --set data.limit=1920 --set evaluation.every=10
tune-sentcl search conisi/strategy --study conisi-strategy $SMALL --seeds 0,1 --set method.lambda=0.8 \
  --set data.limit=512
tune-sentcl search clsr/batch_size --study clsr-batch_size $SMALL --seeds 0,1,2 \
  --set data.limit=2048 --set optimizer.epochs=10 --set optimizer.warmup_epochs=1 --set evaluation.every=5
tune-sentcl demo --files --data .
tune-sentcl search support.toml --study support-study --objective support:ndcg@10:dev --samples 12 \
  --seeds 0,1,2 --confirm 3
for study in scl-lambda conisi-strategy clsr-batch_size support-study; do
  tune-sentcl report $study --out ${study%-study}.html --figures $study.figures
done
