#!/usr/bin/env python3
"""No global generator where the same seed must give the same numbers, after a resume too (jobs.md §7): order, dropout and noise are
functions of a seed by a counter-based generator (worker/train/philox.h, services/statistics/random_stream.h).

usage: global_random.py REPOSITORY
Forbidden in the rooms that compute: generators of C, of <random> and of LibTorch, and LibTorch's functions that draw from its own one.
Forbidden everywhere: rand() and its like, whose state is the whole process's. Prints one line a fault and exits 1, or a count.
"""

import re
import sys
from pathlib import Path

FOLDERS = ("worker", "services", "scheduler", "client", "deploy", "proto")
COMPUTES = ("worker/kernels/", "worker/model/", "worker/train/", "worker/evaluate/", "worker/serve/", "services/data/",
            "services/statistics/", "services/text/")

# The lookbehind lets pass what only ends so: operand(), x.rand(). random() of C is a name that objects have here.
EVERYWHERE = re.compile(r"(?<![\w.>])(s?rand|srandom|[dlm]rand48|srand48)\s*\(|\bstd::random_shuffle\b")
ENGINES = r"random_device|default_random_engine|mt19937(?:_64)?|minstd_rand0?|ranlux\w+|knuth_b|mersenne_twister_engine"
DRAWS = (r"rand|randn|randint|randperm|rand_like|randn_like|randint_like|normal|bernoulli|multinomial|poisson|binomial|dropout|"
         r"alpha_dropout|feature_dropout|native_dropout|manual_seed")
COMPUTING = re.compile(
    rf"\bstd::(?:{ENGINES})\b"
    rf"|\b(?:at|torch)::(?:{DRAWS})_?\s*\("
    r"|\.(?:uniform|normal|random|bernoulli|exponential|geometric|cauchy|log_normal)_\s*\("
    r"|\.(?:bernoulli|multinomial)\s*\("
    r"|\b(?:getDefaultCPUGenerator|getDefaultCUDAGenerator|defaultGenerator|createCPUGenerator|set_current_seed)\b"
    r"|\btorch::nn::(?:init::|\w*Dropout)")
COMMENT = re.compile(r"//.*")


def faults_of(path, text):
    """Lines of one file that draw from a global generator."""
    computes = path.startswith(COMPUTES)
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        code = COMMENT.sub("", line)
        if EVERYWHERE.search(code) or (computes and COMPUTING.search(code)):
            faults.append(f"{path}:{number}: {line.strip()}")
    return faults


def main():
    root = Path(sys.argv[1])
    faults, files = [], 0
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".cc", ".h"):
                continue
            files += 1
            faults += faults_of(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    if files == 0:
        sys.exit(f"global_random.py: no source below {root}")
    print("\n".join(faults) or f"{files} files, none with a global generator")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
