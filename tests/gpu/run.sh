#!/usr/bin/env bash
# What a machine with a GPU is asked: do the kernels make the same bytes, is the device trusted, how
# fast is it against its own copying. Prints one block for docs/gpu-runs.md. Needs a built release.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${RAVEN_BUILD:-build/release}
date -u +'date: %Y-%m-%d'
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || true
"$build/agent/raven-agent" devices
echo
echo "10,000 random cases on every device, byte for byte against the processor's encoder:"
RAVEN_EXPECT_CUDA=1 "$build/tests/agent_gpu_gpu_update_test" 2>&1 | grep -E 'cuda:|OK|FAILED|ERROR|passed|PASSED'
echo
"$build/bench/codec" --devices
