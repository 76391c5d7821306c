#!/usr/bin/env bash
# Grade a folder of submissions on a Slurm cluster: an array of jobs, a GPU and a share of the class each.
#
#     sbatch --array=1-8 ci/slurm-grade.sh TOPIC SUBMISSIONS OUT SEED_FILE
#
# from the course's folder, which every node sees. SEED_FILE holds one whole number that only you can read:
# all jobs draw their inputs from it. Results are OUT/<job of the array>/results/<id>.json. See ci/README.md.
#
#SBATCH --job-name=softmark
#SBATCH --gres=gpu:1
#SBATCH --exclusive
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=12:00:00
#SBATCH --export=NONE
#SBATCH --output=softmark-%A_%a.log
set -euo pipefail

if [ $# != 4 ] || [ -z "${SLURM_ARRAY_TASK_ID:-}" ]; then
    echo "usage: sbatch --array=1-8 ci/slurm-grade.sh TOPIC SUBMISSIONS OUT SEED_FILE" >&2
    exit 2
fi
topic=$1 submissions=$2 out=$3/$SLURM_ARRAY_TASK_ID
seed=$(cat "$4")

if [ "${SLURM_ARRAY_TASK_MIN:-}" != 1 ] || [ "${SLURM_ARRAY_TASK_MAX:-}" != "$SLURM_ARRAY_TASK_COUNT" ]; then
    echo "the array has to be 1-n, each number once: a share of the class belongs to each" >&2
    exit 2
fi

# Softmark takes the times on the first GPU that the driver shows.
gpus=$(nvidia-smi --list-gpus | wc -l)
if [ "$gpus" != 1 ]; then
    echo "this job sees $gpus GPUs: Slurm has to show it its own alone (ConstrainDevices=yes in cgroup.conf)" >&2
    exit 2
fi

exec .venv/bin/python -P -m softmark grade "$submissions" --topic "$topic" --out "$out" \
    --seed "$seed" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --device cuda --require-gpu
