#!/usr/bin/env python3
"""The check of generators finds what it is for: each case is one forbidden or allowed line."""

import sys

from global_random import faults_of

FORBIDDEN = [
    ("worker/train/x.cc", "const int n = std::rand() % 5;"),
    ("worker/train/x.cc", "std::mt19937_64 engine(seed);"),
    ("worker/model/x.cc", "std::random_device device;"),
    ("worker/model/x.cc", "auto w = at::randn({4, 4});"),
    ("worker/model/x.cc", "weight.normal_(0, 0.02);"),
    ("worker/kernels/x.cc", "auto kept = at::dropout(x, 0.1, true);"),
    ("worker/evaluate/x.cc", "const auto order = torch::randperm(n);"),
    ("worker/serve/x.cc", "const auto id = probabilities.multinomial(1);"),
    ("worker/train/x.cc", "at::manual_seed(7);"),
    ("worker/train/x.cc", "auto generator = at::detail::getDefaultCPUGenerator();"),
    ("services/data/x.cc", "std::default_random_engine engine;"),
    ("scheduler/core/x.cc", "const int seed = rand();"),
    ("client/cli/x.cc", "srand(time(nullptr));"),
]
ALLOWED = [
    ("worker/train/x.cc", "Philox random(seed, Site::kDropout, stream);"),
    ("worker/evaluate/x.cc", "RandomStream random(seed, Draw::kNeedles, sample);"),
    ("worker/train/x.cc", "// as at::randn would, but by (seed, step)"),
    ("worker/train/x.cc", "const auto value = random.uniform();"),
    ("worker/model/x.cc", "const Operand out = operand(x);"),
    ("services/base/x.h", "std::mt19937_64 engine_;  // a test's own, by its seed"),
    ("services/rpc/x.cc", "std::random_device random;"),
]


def main():
    missed = [case for case in FORBIDDEN if not faults_of(*case)]
    wrong = [case for case in ALLOWED if faults_of(*case)]
    for case in missed:
        print("not found:", *case)
    for case in wrong:
        print("wrongly refused:", *case)
    sys.exit(1 if missed or wrong else 0)


if __name__ == "__main__":
    main()
