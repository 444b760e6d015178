"""A real platform with a small random model in fp32 and an adapter trained on it, and that adapter folded."""

import hashlib
import json
import pathlib
import shutil
import subprocess
import time

import safetensors.torch
import torch
import transformers

NAME = "tiny-fp32"
CONTEXT = 128


def write_model(folder, source):
    """A Llama of 3 layers with random weights behind SmolLM2's tokenizer; returns the allow-list with only this model."""
    model = folder / NAME
    model.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                 "chat_template.jinja"):
        shutil.copy(source / file, model / file)
    config = json.loads((source / "config.json").read_text())
    config |= {"torch_dtype": "float32", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
               "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": CONTEXT,
               "initializer_range": 0.08}
    (model / "config.json").write_text(json.dumps(config, indent=2))
    torch.manual_seed(7)
    weights = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(model)).state_dict()
    weights.pop("lm_head.weight", None)  # the embedding's
    safetensors.torch.save_file(weights, model / "model.safetensors", metadata={"format": "pt"})

    def digest(file):
        return hashlib.sha256((model / file).read_bytes()).hexdigest()

    models = folder / "models.json"
    models.write_text(json.dumps({"models": [{
        "name": NAME, "folder": NAME, "display_name": "Tiny, fp32", "family": "llama", "license": "Apache-2.0",
        "weights_sha256": digest("model.safetensors"), "tokenizer_sha256": digest("tokenizer.json"),
        "chat_template_sha256": digest("chat_template.jinja"), "languages": ["en"]}]}))
    return models


class Platform:
    """dexd on free ports. Use with `with`; it is stopped and its whole session ended at the end."""

    def __init__(self, binaries, folder, models):
        self.binaries, self.folder, self.models = binaries, folder, models
        self.data = folder / "data"
        self.server = None

    def __enter__(self):
        self.log = open(self.folder / "dexd.log", "wb")
        self.dexd = subprocess.Popen(
            [self.binaries / "dexd", "--data-dir", self.data, "--grpc-port", "0", "--http-port", "0", "--threads", "1",
             "--models", self.models], stdout=self.log, stderr=subprocess.STDOUT)
        endpoints = self.data / "endpoints.json"
        deadline = time.monotonic() + 180
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

    def ctl(self, *args):
        done = subprocess.run([self.binaries / "dexctl", *args, "--server", self.server, "--output", "json"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"dexctl {args[0]} {args[1]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None

    def train(self):
        """A short job in the paper's form, at rates at which every part of it moves; returns the finished job."""
        rows = self.folder / "rows.jsonl"
        rows.write_text("".join(json.dumps({"text": f"Row {n}: {n * 7 % 31} apples, {n * 5 % 23} pears and {n * 3 % 17} plums "
                                                    f"were counted by inspector {n % 9}."}) + "\n" for n in range(48)))
        return self.ctl("jobs", "create", "--model", NAME, "--training-file", str(rows), "--preset", "paper",
                        "--max-steps", "12", "--batch-size", "4", "--max-seq-length", "64", "--seed", "1",
                        "--learning-rate", "0.01", "--set", "hyperparameters.branch_learning_rate=0.02",
                        "--set", "hyperparameters.lambda_learning_rate=0.1",
                        "--set", "dex.head_selection.calibration.n_sequences=2",
                        "--set", "dex.head_selection.calibration.seq_length=64", "--yes", "--follow")

    def fold(self, adapter):
        """The adapter inside its model, as a Hugging Face folder in fp32."""
        downloaded, folded = self.folder / "adapter", self.folder / "folded"
        self.ctl("adapters", "download", adapter, str(downloaded))
        subprocess.run([self.binaries / "dex-engine", "fold", "--model", self.model, "--adapter", downloaded, "--dtype", "f32",
                        "--threads", "1", "--out", folded], check=True, capture_output=True)
        return folded

    @property
    def model(self):
        return pathlib.Path(self.models).parent / NAME
