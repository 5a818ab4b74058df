#!/usr/bin/env bash
# The sets of `one_gpu.sh` in $DATA, from copies as we have them in $FROM (cub200, pets, mnist), and
# the training pictures of Pets and CUB as tables, to choose settings by.
set -eu
: "${FROM:?}" "${DATA:?}"
mkdir -p "$DATA"
for set in cub200 pets mnist; do
    [ ! -d "$FROM/$set" ] || [ -d "$DATA/$set" ] || cp -r "$FROM/$set" "$DATA/$set"
done
if [ -d "$DATA/pets" ] && [ ! -d "$DATA/petsval" ]; then
    mkdir "$DATA/petsval"
    python3 -m zipfile -e "$DATA/pets/pets.zip" "$DATA/petsval"
    tr -d '\r' <"$DATA/pets/labels.csv" |
        awk -F, 'NR == 1 { print "path,label" } $4 == "trainval" { print $1 "," $3 }' \
            >"$DATA/petsval/petsval.csv"
fi
if [ -d "$DATA/cub200" ] && [ ! -d "$DATA/cubval" ]; then
    mkdir -p "$DATA/cubval/images"
    for half in train test; do
        python3 -m zipfile -e "$DATA/cub200/cub_$half.zip" "$DATA/cubval/images"
    done
    cd "$DATA/cub200"
    paste -d ' ' images.txt image_class_labels.txt train_test_split.txt |
        awk 'NR == 1 { print "path,label" } $6 == 1 { print "images/" $2 "," $4 }' \
            >"$DATA/cubval/cubval.csv"
fi
