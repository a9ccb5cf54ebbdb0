#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Build an image in build/images, with the list of its parts; no registry of images is needed (docs/containers.md).
#
#   make image MPI=mpich CUDA=12 PACKAGES="torch"
#
# Two builds of one commit from the same packages of Debian and Python have one digest.
set -euo pipefail
cd "$(dirname "$0")/.."
MPI=${MPI:-openmpi} CUDA=${CUDA:-} BIN=${BIN:-.venv/bin}
PACKAGES="${PACKAGES:-}${CUDA:+ cupy-cuda${CUDA}x[ctk]}" # beside hpccoll, as pip names them
RELEASE=bookworm PYTHON=3.11 GLIBC=36 # Debian 12

missing=$(for program in buildah mmdebstrap git; do command -v $program >/dev/null || echo -n " $program"; done)
[ -z "$missing" ] || { echo "make image: no$missing on PATH: apt-get install$missing" >&2; exit 1; }

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot} # which works in a container, too
target=${CUDA:+cuda} name=hpccoll-$MPI${CUDA:+-cuda$CUDA} extras=demo${CUDA:+,cuda$CUDA}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
folder=build/images work=$PWD/build/images/work context=$PWD/build/images/work/context
wheels=$context/build/images/wheels

store=(--root "$work/storage" --runroot "$work/run")
clean() { # what an interrupted build has mounted goes first
    [ ! -d "$work/storage" ] || buildah "${store[@]}" rm --all >/dev/null || true
    $([ "$(id -u)" = 0 ] || echo buildah unshare) rm -rf --one-file-system "$work"
}
build() { # IMAGE OPTION...: all files have one time, and no cache is used
    buildah "${store[@]}" build --quiet --squash --timestamp "$SOURCE_DATE_EPOCH" \
        --tag "$@" "$context" >/dev/null
}
exec 9< images/build.sh
flock 9 # another build in this folder ends first
trap clean EXIT
clean
mkdir -p "$wheels" "$work/root"

echo "$name: Debian's base"
mmdebstrap --quiet --variant=apt --dpkgopt=path-exclude=/usr/share/{doc,info,locale,man}/'*' \
    --dpkgopt=path-include="/usr/share/doc/*/copyright" \
    --customize-hook='rm -f "$1/etc/hostname" "$1/etc/resolv.conf"' \
    "$RELEASE" "$context/base.tar" ${MIRROR:+"$MIRROR"}
build base --file - <<< $'FROM scratch\nADD base.tar /'

echo "$name: packages of Python"
# shellcheck disable=SC2086  # several words
"$BIN/python" - "$extras" $PACKAGES > "$work/requirements" <<'END'
import sys, tomllib
facts = tomllib.load(open("pyproject.toml", "rb"))
extras = (facts["project"]["optional-dependencies"][name] for name in sys.argv[1].split(","))
print(*facts["build-system"]["requires"], *facts["project"]["dependencies"], *sum(extras, []), *sys.argv[2:], sep="\n")
END
# shellcheck disable=SC2046
"$BIN/python" -m pip download --quiet --dest "$wheels" --requirement "$work/requirements" --only-binary :all: \
    --python-version $PYTHON $(seq -f "--platform=manylinux_2_%.0f_$(uname -m)" $GLIBC -1 5) \
    --platform=manylinux{2014,2010,1}_"$(uname -m)"

echo "$name: the image"
git ls-files -z | xargs -0 cp --parents --target-directory "$context"
build "$name" --file images/Containerfile --target "${target:-cpu}" --build-arg BASE=localhost/base \
    --build-arg MPI="$MPI" --build-arg EXTRAS="$extras" --build-arg PACKAGES="$PACKAGES" \
    --build-arg PIP_NO_INDEX=1 --build-arg VERSION="$version" \
    --build-arg REVISION="$(git describe --always --dirty --abbrev=40 --exclude '*')" \
    --build-arg SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH"
buildah "${store[@]}" push --quiet "$name" "oci:$work/oci:$name"
digest=$(sed 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/' "$work/oci/index.json")
tar --create --file "$folder/$name.oci.tar" --directory "$work/oci" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner blobs index.json oci-layout

echo "$name: its parts"
layer=$(sed 's/.*"layers":.*"digest":"sha256:\([0-9a-f]*\)".*/\1/' "$work/oci/blobs/sha256/$digest")
tar --extract --gzip --file "$work/oci/blobs/sha256/$layer" --directory "$work/root" --wildcards \
    var/lib/dpkg/status '*/site-packages/*.dist-info'
"$BIN/python" -m venv --without-pip "$work/look"
echo "$work"/root/opt/hpccoll/lib/python*/site-packages > "$(echo "$work"/look/lib/python*/site-packages)/image.pth"
"$BIN/cyclonedx-py" environment --output-reproducible --pyproject pyproject.toml \
    --output-file "$work/python.cdx.json" "$work/look/bin/python"
"$BIN/debsbom" generate --sbom-type cdx --root "$work/root" --distro-version "$RELEASE" --out "$work/debian"
"$BIN/debsbom" merge --sbom-type cdx --distro-name "$name" --distro-version "$version" \
    --distro-summary "OCI image sha256:$digest" --timestamp "$(date --utc --date "@$SOURCE_DATE_EPOCH" +%FT%TZ)" \
    --cdx-serialnumber "$("$BIN/python" -c "import uuid; print(uuid.uuid5(uuid.NAMESPACE_OID, '$digest'))")" \
    --out "$folder/$name" "$work/debian.cdx.json" "$work/python.cdx.json"

echo "$folder/$name.oci.tar: $(($(stat --format=%s "$folder/$name.oci.tar") / 1000000)) MB, sha256:$digest"
echo "$folder/$name.cdx.json: its parts"
