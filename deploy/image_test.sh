#!/bin/sh
# Builds the image on a base made here, and runs it as a cluster would: read-only, without capabilities, as its user.
# Needs root and Debian's buildah, podman, runc and mmdebstrap; without them it says which are missing and does nothing. Takes some minutes.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'image-test: %s\n' "$*" >&2; }

missing=
for name in buildah podman runc mmdebstrap; do
    command -v "$name" >/dev/null || missing="$missing $name"
done
[ "$(id -u)" = 0 ] || missing="$missing root"
if [ -n "$missing" ]; then
    say "skipped, for want of:$missing"
    exit 0
fi

work=$(mktemp -d)
storage="--root $work/storage --runroot $work/run --storage-driver vfs"
trap 'podman_ rm --all --force >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC2086  # a list of options
podman_() { podman $storage --cgroup-manager cgroupfs --runtime runc "$@"; }

fail() {
    say "$*"
    exit 1
}

# This distribution has Python 3.11. With ejabberd added, the image can run a complete queue on its own.
say "building the base: Debian with Python and ejabberd"
mmdebstrap --quiet --variant=minbase --include=ca-certificates,ejabberd,python3,python3-pip,python3-venv \
    bookworm "$work/base.tar"
# shellcheck disable=SC2086
buildah $storage from --name base scratch >/dev/null
# shellcheck disable=SC2086
buildah $storage add base "$work/base.tar" >/dev/null
# shellcheck disable=SC2086
buildah $storage commit --quiet base localhost/base >/dev/null

say "downloading the locked files for the build"
mkdir "$work/locked"
for name in build frontend demo reports; do
    # On Python before 3.11.3, which the base has, redis needs async-timeout.
    sed "s/^\(async-timeout==[^ ]*\) ;.*'/\1/" "deploy/locked/$name.txt" >"$work/locked/$name.txt"
    # These two have no wheel.
    .venv/bin/pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation --require-hashes \
        --python-version 3.11 --only-binary :all: --no-binary pyspark --no-binary python-qpid-proton \
        --dest "$work/wheels" --requirement "$work/locked/$name.txt"
done
printf '[global]\nno-index = true\nfind-links = /wheels\n' >"$work/pip.conf"

build() {
    # shellcheck disable=SC2086
    buildah $storage bud --quiet --no-cache --timestamp 1767225600 --isolation chroot --format docker --target "$1" --file deploy/Dockerfile \
        --build-arg SOURCE_DATE_EPOCH=1767225600 \
        --build-arg BASE=localhost/base --build-arg LOCKED="frontend.txt demo.txt" \
        --volume "$work/wheels:/wheels:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" --tag "$2" . >/dev/null
}

say "the image, twice"
build frontend localhost/stanzaq
build frontend localhost/again
layers() { podman_ image inspect --format '{{.RootFS.Layers}}' "$1"; }
[ "$(layers localhost/stanzaq)" = "$(layers localhost/again)" ] || fail "two builds differ"

# A frontend without an XMPP server, with its own Redis. Each container copies the whole image, so one must do.
podman_ run --detach --name frontend --network none --read-only --cap-drop ALL --security-opt no-new-privileges \
    --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --tmpfs /tmp:rw,mode=1777 --no-healthcheck \
    --env STANZAQ_XMPP_DOMAIN=queue.example.org --env STANZAQ_XMPP_SECRET=secret \
    --env STANZAQ_REDIS_URL=embedded:// --env STANZAQ_WATCHDOG_SECONDS=5 localhost/stanzaq >/dev/null
inside() { podman_ exec frontend "$@"; }

say "its user, its files"
[ "$(inside id -u)" = 10001 ] || fail "it does not run as user 10001"
for name in gcc cc g++ make; do
    ! inside sh -c "command -v $name" || fail "$name is in it"
done
! inside sh -c 'touch /opt/stanzaq/x' 2>/dev/null || fail "its files can be changed"

say "serve xmpp --check"
inside stanzaq serve xmpp --check
say "the other doors, and traces"
podman_ exec --env STANZAQ_TRACES=true --env STANZAQ_HTTP_ANONYMOUS=guest@example.org frontend stanzaq serve rest --check
podman_ exec --env STANZAQ_AMQP_ANONYMOUS=guest@example.org frontend stanzaq serve amqp --check

say "doctor"
inside stanzaq doctor

say "a demo inside"
inside stanzaq demo --items 500 --json

say "its health: alive, and not ready without an XMPP server"
healthy() { inside stanzaq health; }
! healthy || fail "it reports that it is ready"
healthy | grep -q "there is no stream to the XMPP server" || fail "it does not report what is missing"

say "a frontend that hangs is ended, and its container with it"
# The first process is tini, the frontend is its child.
inside python -c "import os, signal; os.kill(int(open('/proc/1/task/1/children').read().split()[0]), signal.SIGSTOP)"
code=$(podman_ wait frontend)
[ "$code" = 137 ] || fail "it continued, or ended with $code"
podman_ rm --force frontend >/dev/null

say "the image for reports"
build reports localhost/reports
say "a demo inside, with a report"
podman_ run --rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges \
    --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --tmpfs /tmp:rw,mode=1777 \
    localhost/reports demo --items 500 --report /tmp/report --json
say "all is well"
