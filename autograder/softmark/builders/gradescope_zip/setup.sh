#!/usr/bin/env bash
# Run once, as root, when Gradescope builds the image: Python, PyTorch if the topic needs it, Softmark.
set -euo pipefail
umask 022  # submissions run as another user, and with this Python

source=${SOFTMARK_ROOT:-/autograder}/source
environment=${SOFTMARK_ENVIRONMENT:-/opt/softmark}
export DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# The first Python that is new enough and can make an environment.
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11; do
        if "$name" -c 'import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

install() {
    apt-get update
    apt-get install --yes --no-install-recommends "$@"
}

ldconfig -p | grep -q 'libseccomp\.so\.2' || install libseccomp2
if ! python=$(find_python); then
    # Ubuntu 24.04 has a Python that is new enough, without venv; 22.04 has one beside its own
    install python3-venv
    python=$(find_python) || { install python3.11 python3.11-venv && python=$(find_python); } || {
        echo "setup.sh: no Python 3.11 or newer here: choose Ubuntu 22.04 or newer as base image" >&2
        exit 1
    }
fi

"$python" -m venv "$environment"
pip=("$environment/bin/python" -m pip install --constraint "$source/constraints.txt")
wheel=("$source"/softmark-*.whl)
if [ -e "$source/needs_torch" ]; then
    # the small build for CPUs is in PyTorch's own index
    "${pip[@]}" --no-deps --index-url https://download.pytorch.org/whl/cpu torch
    "${pip[@]}" "${wheel[0]}[torch]"
else
    "${pip[@]}" "${wheel[0]}"
fi

# Solution and graders are for root alone.
[ "$(id -u)" != 0 ] || chown -R 0:0 "$source"
chmod -R go= "$source"

"$environment/bin/softmark" doctor || true  # for whoever reads the log of the build
