#!/bin/sh
# Downloads the files of PyTorch's own tests that test_torch_suite.py runs, from the source package of PyTorch in Debian 13:
#
#     fetch_pytorch_tests.sh FOLDER
#
# It is of an older version than the PyTorch that is tested: a test that PyTorch itself fails does not count.
set -eu
folder=$1
archive=pool/main/p/pytorch/pytorch_2.6.0+dfsg.orig.tar.xz
sum=099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff
part=$folder.part
trap 'rm -rf "$part"' EXIT
mkdir -p "$part/files"
# The mirrors that apt uses here; not every one has it.
# shellcheck disable=SC2016 # the format is apt-get's
for mirror in $(apt-get indextargets --format '$(REPO_URI)' | sort -u); do
    if curl --silent --fail --location --max-time 300 --output "$part/archive" "${mirror%/}/$archive"; then break; fi
done
echo "$sum  $part/archive" | sha256sum --check --quiet -
tar -xJf "$part/archive" -C "$part/files" --strip-components=2 --wildcards '*/test/test_transformers.py'
tar -xJf "$part/archive" -C "$part/files" --strip-components=3 --wildcards '*/test/nn/test_multihead_attention.py'
mv "$part/files" "$folder"
