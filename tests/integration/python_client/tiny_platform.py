"""A real platform: dexd on free ports with a small random model in fp32 behind SmolLM2's tokenizer. Needs no torch."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import numpy
from safetensors.numpy import save_file

NAME = "tiny-fp32"
CONTEXT, LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, WIDTH = 128, 3, 64, 128, 4, 2, 16


def weights(vocabulary):
    """A Llama's, by a fixed draw."""
    draw = numpy.random.default_rng(7)

    def normal(*shape):
        return (draw.standard_normal(shape) * 0.08).astype(numpy.float32)

    tensors = {"model.embed_tokens.weight": normal(vocabulary, HIDDEN), "model.norm.weight": numpy.ones(HIDDEN, numpy.float32)}
    shapes = {"self_attn.q_proj": (HEADS * WIDTH, HIDDEN), "self_attn.k_proj": (KV_HEADS * WIDTH, HIDDEN),
              "self_attn.v_proj": (KV_HEADS * WIDTH, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * WIDTH),
              "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}
    for layer in range(LAYERS):
        place = f"model.layers.{layer}."
        tensors |= {f"{place}{name}.weight": normal(*shape) for name, shape in shapes.items()}
        tensors |= {f"{place}{name}.weight": numpy.ones(HIDDEN, numpy.float32)
                    for name in ("input_layernorm", "post_attention_layernorm")}
    return tensors


def write_model(folder, source):
    """Writes the model; returns the allow-list with only this model in it."""
    model = folder / NAME
    model.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                 "chat_template.jinja"):
        shutil.copy(source / file, model / file)
    config = json.loads((source / "config.json").read_text())
    config |= {"torch_dtype": "float32", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
               "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": WIDTH,
               "max_position_embeddings": CONTEXT}
    (model / "config.json").write_text(json.dumps(config, indent=2))
    save_file(weights(config["vocab_size"]), model / "model.safetensors", metadata={"format": "pt"})

    def digest(file):
        return hashlib.sha256((model / file).read_bytes()).hexdigest()

    models = folder / "models.json"
    models.write_text(json.dumps({"models": [{
        "name": NAME, "folder": NAME, "display_name": "Tiny, fp32", "family": "llama", "license": "Apache-2.0",
        "weights_sha256": digest("model.safetensors"), "tokenizer_sha256": digest("tokenizer.json"),
        "chat_template_sha256": digest("chat_template.jinja"), "languages": ["en"]}]}))
    return models


def write_rows(path, count=48):
    path.write_text("".join(json.dumps({"text": f"Row {n}: {n * 7 % 31} apples, {n * 5 % 23} pears and {n * 3 % 17} plums were "
                                                f"counted by inspector {n % 9}."}) + "\n" for n in range(count)))
    return path


def short_job(**more):
    """A job in the paper's form, at rates at which every part of it moves."""
    rates = {"learning_rate": 0.01, "branch_learning_rate": 0.02, "lambda_learning_rate": 0.1}
    return {"model": NAME, "preset": "paper", "seed": 1,
            "dex": {"head_selection": {"calibration": {"n_sequences": 2, "seq_length": 64}}},
            "hyperparameters": {"max_steps": 12, "batch_size": 4, "max_seq_length": 64, **rates, **more}}


class Platform:
    """dexd. Use with `with`; it is stopped at the end, or killed."""

    def __init__(self, binaries, deps, folder):
        self.binaries, self.folder, self.data = binaries, folder, folder / "data"
        self.models = write_model(folder / "models", deps / "models/smollm2-135m-instruct")
        self.server = None

    @property
    def model(self):
        return self.models.parent / NAME

    def __enter__(self):
        self.log = open(self.folder / "dexd.log", "wb")
        self.dexd = subprocess.Popen(
            [self.binaries / "dexd", "--data-dir", self.data, "--grpc-port", "0", "--http-port", "0", "--threads", "1",
             "--models", self.models], stdout=self.log, stderr=subprocess.STDOUT)
        endpoints, deadline = self.data / "endpoints.json", time.monotonic() + 180
        while not endpoints.exists():
            if self.dexd.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError("dexd did not come up:\n" + (self.folder / "dexd.log").read_text())
            time.sleep(0.05)
        self.server = json.loads(endpoints.read_text())["grpc"]
        return self

    def __exit__(self, *_):
        self.dexd.terminate()
        try:
            self.dexd.wait(120)
        finally:
            self.dexd.kill()
            self.log.close()

    def kill(self, name):
        """SIGKILL to this dexd's own process of that name; dexd starts it again."""
        for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, rest = status.read_text().split(" (", 1)
                comm, fields = rest.rsplit(") ", 1)
            except OSError:
                continue
            if comm == name[:15] and int(fields.split()[1]) == self.dexd.pid:
                os.kill(int(pid), signal.SIGKILL)
                return
        raise RuntimeError(f"this dexd has no process {name}")
