#!/usr/bin/env bash
# Try all that needs a GPU on this machine, in under 8 minutes, and write what was found as Markdown.
#
#     ci/gpu_check.sh [--out FILE] [--course DIR] [--whole] [--device cpu]
#
#   --out FILE     where to write it (default: gpu-check.md)
#   --course DIR   whose items are tried (default: this one's)
#   --whole        then also grade every reference with `softmark grade --device cuda`, as long as it takes
#   --device cpu   for tests of this script: CPU workers, a few runs, and numbers that mean nothing
#
# PYTHON names the interpreter that Softmark and PyTorch are installed for (default: .venv/bin/python).
# Exit code: 0 all went well, 1 something failed and is told in FILE, 2 no GPU that can be used, 64 bad usage.
set -euo pipefail
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly MOST_SECONDS=470
python=${PYTHON:-.venv/bin/python}
device=cuda
out=gpu-check.md
course=$PWD
whole=

usage() {
    echo "gpu_check: $1; usage: ci/gpu_check.sh [--out FILE] [--course DIR] [--whole] [--device cpu]" >&2
    exit 64
}

while [ $# -gt 0 ]; do
    case $1 in
        --out) out=${2:-} && shift ;;
        --course) course=${2:-} && shift ;;
        --device) device=${2:-} && shift ;;
        --whole) whole=yes ;;
        *) usage "'$1' is no option" ;;
    esac
    shift || usage "a value is missing"
done
[ -n "$out" ] || usage "--out needs a file"
case $out in /*) ;; *) out=$here/$out ;; esac
case $course in /*) ;; *) course=$here/$course ;; esac
[ -f "$course/course.yaml" ] || usage "--course: '$course' has no course.yaml"
[ "$device" = cuda ] || [ "$device" = cpu ] || usage "--device is cuda or cpu"
"$python" -c 'import softmark' 2>/dev/null ||
    usage "$python has no Softmark; make .venv, or name another by PYTHON"

no_gpu() {
    echo "gpu_check: nothing was tried: $1" >&2
    exit 2
}

if [ "$device" = cuda ]; then
    unfit=$("$python" -P -c 'from softmark import gpu; g = gpu.look(); print(g if isinstance(g, str) else g.unfit())')
    [ -z "$unfit" ] || no_gpu "$unfit"
    "$python" -P -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' ||
        no_gpu "PyTorch cannot use the GPU: $("$python" -P -c 'import torch; print(torch.__version__)' 2>&1 | tail -n 1)"
    minutes=(4 1 1.25)
    few=()
else
    minutes=(3 0 0.2)
    few=(--pairs 2)
fi

log=$(mktemp)
page=$(mktemp)
trap 'rm -f "$log" "$page"' EXIT
failed=

# A section of the page: a title, and what a command prints; its errors go to the terminal too.
section() {
    local title=$1 fence=$2 left=$((MOST_SECONDS - SECONDS)) code=0
    shift 2
    [ -z "$whole" ] || left=100000
    echo "== $title" >&2
    printf '\n## %s\n\n%s' "$title" "${fence:+$fence$'\n'}" >>"$page"
    timeout "$((left > 1 ? left : 1))" "$@" 2> >(tee "$log" >&2) >>"$page" || code=$?
    printf '%s' "${fence:+$fence$'\n'}" >>"$page"
    if [ "$code" != 0 ]; then
        failed=yes
        # shellcheck disable=SC2016 # the backquotes are Markdown's
        printf '\n**Failed**, exit code %s (124: it took too long).\n\n```text\n%s\n```\n' "$code" "$(tail -n 5 "$log")" >>"$page"
    fi
}

cuda_tests() {
    local files
    mapfile -t files < <(grep -l 'skipif(not torch.cuda' tests/test_*.py)
    "$python" -m pytest -q --no-header -p no:cacheprovider -k 'gpu or cuda' "${files[@]}" | tail -n 3
}

grade_references() {
    local topic code=0
    for topic in "$course"/assignments/*/; do
        topic=$(basename "$topic")
        grep -q 'device: cuda' "$course/assignments/$topic/assignment.yaml" || continue
        "$python" -P -m softmark grade "$course/solutions/$topic" --topic "$topic" --course "$course" \
            --out "out/gpu-check/$topic" --device "$device" --require-gpu --strict || code=$?
    done
    return "$code"
}

export -f cuda_tests grade_references
export python device course

about() {
    if [ "$device" = cuda ]; then
        nvidia-smi --id=0 --query-gpu=name,memory.total,driver_version --format=csv,noheader
    else
        echo 'CPU workers: a test of the script. The numbers mean nothing.'
    fi
    "$python" -P -c 'import platform, torch
print(f"Python {platform.python_version()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")'
    date -u '+%Y-%m-%d'
}

{
    # shellcheck disable=SC2016 # the backquotes are Markdown's
    printf '# What `ci/gpu_check.sh` found\n\n```text\n'
    about
    printf '```\n'
} >"$page"

section 'What a submission is kept from' '```' "$python" -P -m softmark doctor
section 'Tests that need CUDA' '```' bash -euo pipefail -c cuda_tests
section 'Every item that needs a GPU, once' '' \
    "$python" benchmarks/gpu_items.py --course "$course" --device "$device" --minutes "${minutes[0]}" "${few[@]}"
section 'The reference against itself' '' \
    "$python" benchmarks/gpu_aa.py --device "$device" --minutes "${minutes[1]}" "${few[@]}"
section 'Ways of writing attention' '' \
    "$python" benchmarks/gpu_styles.py --device "$device" --minutes "${minutes[2]}" "${few[@]}"
took=$SECONDS
if [ -n "$whole" ]; then
    section 'Every reference, graded' '```' bash -euo pipefail -c grade_references
fi
printf '\nThis took %s s%s.\n' "$took" "${whole:+, before the references were graded}" >>"$page"

cp "$page" "$out"
echo "gpu_check: $out${failed:+; something failed, see there}" >&2
[ -z "$failed" ]
