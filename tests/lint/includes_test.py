#!/usr/bin/env python3
"""The layering check finds what it is for: each case is one forbidden or allowed include."""

import sys

from includes import faults_of

FORBIDDEN = [
    ("services/base/x.h", "#include <grpcpp/grpcpp.h>"),
    ("services/base/x.h", '#include "services/rpc/status.h"'),
    ("scheduler/core/x.cc", '#include "scheduler/store/redis.h"'),
    ("scheduler/store/x.cc", "#include <grpcpp/server.h>"),
    ("scheduler/server/x.cc", "#include <hiredis/hiredis.h>"),
    ("worker/agent/x.cc", "#include <ATen/ATen.h>"),
    ("services/statistics/x.h", '#include "worker/evaluate/task.h"'),
    ("worker/model/x.cc", '#include "worker/train/loop.h"'),
    ("worker/model/x.cc", '#include "dex/v1/finetuning.pb.h"'),
    ("worker/train/x.cc", '#include <ATen/core/Tensor.h>\n#include "dex/v1/finetuning.pb.h"'),
    ("client/cli/x.cc", '#include "scheduler/core/presets.h"'),
    ("services/gateway/http/x.cc", '#include "scheduler/core/presets.h"'),
    ("deploy/standalone/x.cc", '#include "services/rpc/status.h"'),
]
ALLOWED = [
    ("scheduler/store/x.cc", "#include <hiredis/hiredis.h>"),
    ("worker/train/x.cc", '#include "worker/model/llama.h"\n#include <ATen/core/Tensor.h>'),
    ("worker/train/frames.cc", '#include "dex/internal/v1/frames.pb.h"'),
    ("services/gateway/http/x.cc", '#include "services/rpc/status.h"'),
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
