#!/usr/bin/env bash
# Several experiments of `kinspace reproduce` at a time on one GPU, for a limited time.
#
#   bash benchmarks/one_gpu.sh STREAMS SECONDS RESULTS
#
# STREAMS: a file; each line is a stream, its experiments one after the other, separated by ";".
# Words of a line are those of `kinspace reproduce`, with $DATA, $WORK and $WEIGHTS filled in:
#
#   density cub200:$DATA/cub200 --weights $WEIGHTS --only contrastive+entropy; nra_mnist mnist:$DATA/mnist
#
# A line may begin with "jobs=N", trainings of this stream at a time. An experiment belongs to one
# stream: two would write the same results file. Started by setsid it outlives the shell that did.
# RESULTS: results files of before, which grow; what is in them is not run again. What has not ended
# after SECONDS is stopped; runs of a table that have ended by then are in its file.
#
# A training takes 3 GB of the GPU at 227 pixels and 17 at 448: 19 at a time ran out of its 140, and
# those that fail are run again by the same command. Seven to twelve fill an H200.
#
# One thread a training, run folders and caches in memory, and CUDA's multi-process service: on an
# H200 with 16 cores seven trainings made 7,355 images a second at 288 pixels, one alone 5,993, and
# thirteen with 45 threads 2,400.
set -u
streams=$1 seconds=$2 results=$3
: "${DATA:?where the data sets are}" "${WEIGHTS:=}"
: "${WORK:=/dev/shm/kinspace}" "${KINSPACE:=python3 -m kinspace}" "${JOBS:=2}"
export DATA WEIGHTS WORK OMP_NUM_THREADS=1
mkdir -p "$WORK" "$results"
command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d 2>/dev/null
until=$((SECONDS + seconds))

stream() { # of a line, its experiments
    local number=$1 line=$2 jobs=$JOBS commands command
    [[ $line =~ ^jobs=([0-9]+)\ (.*) ]] && jobs=${BASH_REMATCH[1]} line=${BASH_REMATCH[2]}
    IFS=';' read -ra commands <<<"$line"
    for command in "${commands[@]}"; do
        local left=$((until - SECONDS)) name
        ((left > 20)) || break
        read -r name _ <<<"$command"
        command=$(eval "echo \"$command\"")
        # a folder of its own: experiments of other streams may have rows of the same names
        # shellcheck disable=SC2086
        timeout --signal=TERM --kill-after=15 "$left" $KINSPACE reproduce $command \
            --jobs "$jobs" --validate 0 --cache "$WORK/cache" \
            --out "$WORK/runs-$number/$(basename "$name" .toml)" --discard-runs \
            --results "$results" ${COMMIT:+--commit $COMMIT} 2>&1 |
            grep --line-buffered -v '^under way' | sed -u "s/^/[$number] /"
    done
}

number=0
while IFS= read -r line || [ -n "$line" ]; do
    case $line in '' | '#'*) continue ;; esac
    number=$((number + 1))
    stream $number "$line" &
    sleep 1
done <"$streams"
wait
echo "one_gpu: $SECONDS s"
