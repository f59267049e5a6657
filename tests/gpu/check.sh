#!/usr/bin/env bash
# Everything that needs a GPU, in one go, on a machine with one: `bash tests/gpu/check.sh [FOLDER FOR RESULTS]`.
# Needs an environment with clusters/environments/gpu.txt; PYTHON names its interpreter. About ten minutes. Not run yet: no machine
# with a GPU has been at hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PYTHON="${PYTHON:-python}"
OUT="${1:-runs/gpu-check}"
mkdir -p "$OUT"

"$PYTHON" -c 'import torch; assert torch.cuda.is_available(), "there is no GPU here"; print(torch.cuda.get_device_name(0))'

# 1. The contract of an engine, with adapters and with full weights.
"$PYTHON" -m pytest tests/gpu

# 2. Agreement of engine and trainer, latency of a new adapter and of a transfer of full weights; in both types.
for dtype in float32 bfloat16; do
    "$PYTHON" tests/gpu/measure.py --dtype "$dtype" | tee "$OUT/measure-$dtype.json"
done

# 3. A short run of GRPO on adapters, rolled out by vLLM, on the base that is part of the checkout.
"$PYTHON" -m coharness run experiments/quickstart/config.yaml "run_dir=$OUT/grpo" \
    fleet.type=local generation.engine=vllm generation.vllm.adapters_per_batch=3 policy.weights=lora \
    training.objective=grpo training.group_size=8 training.learning_rate='[1e-5,1e-3]' training.initial_learning_rate=1e-4 \
    budget.rollouts=4096 budget.minutes=5 --progress none || test $? -eq 3
"$PYTHON" -m coharness replay "$OUT/grpo"
