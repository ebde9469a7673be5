#!/usr/bin/env bash
# Regenerates every committed file that a program makes.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/generate-wire.sh
scripts/generate-wire-vectors.sh
scripts/build-stripe-module.sh
