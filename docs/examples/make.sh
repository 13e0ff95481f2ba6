#!/bin/sh
# The studies behind the reports of this folder: run it in an empty folder, with TUNE_SENTCL_DATA set.
# The encoder `toy` has two layers of random weights: the rows and the sets are real, the scores are
# no paper's. With an encoder that was pretrained (minilm, bert-base-uncased) a trial takes minutes.
set -e
SMALL='--set encoder.checkpoint=toy --set evaluation.suites=["sts"] --set evaluation.protocols=cosine
  --keep 0 --max-concurrent 1'
tune-sentcl search scl/lambda --study scl-lambda $SMALL \
  --set encoder.share_duplicates=true --set data.limit=1920 --set evaluation.every=10
tune-sentcl search conisi/strategy --study conisi-strategy $SMALL --seeds 0,1,2 \
  --set data.limit=1920 --set evaluation.every=10
tune-sentcl search clsr/batch_size --study clsr-batch_size $SMALL --seeds 0,1,2 \
  --set data.limit=1024 --set optimizer.epochs=3 --set optimizer.warmup_epochs=0.5 --set evaluation.every=1
for study in scl-lambda conisi-strategy clsr-batch_size; do
  tune-sentcl report $study --out $study.html --figures $study.figures
done
