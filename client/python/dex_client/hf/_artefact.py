"""An adapter's folder, read and checked (architecture.md §6): hashes, keys, shapes, finite values, and the base it is for.

Two layouts: ours (`peft_type` DEX: a branch, W_K W_V W_O, LoRA beside a branch, bottleneck adapters) and PEFT's for plain
LoRA, whose hashes are in provenance.json. What a job of method full, diff or train full+dex makes is a whole model.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pathlib
from typing import Any

import torch
from safetensors.torch import load_file

from .._artefacts import checksums, sha256_of
from .._errors import DexError

PREFIX = "base_model.model."
KVO = ("k_proj", "v_proj", "o_proj")
LINEARS = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn", "gate_proj": "mlp",
           "up_proj": "mlp", "down_proj": "mlp"}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FORMS = ("none", "paper", "head_mean", "prefix_mean", "uniform_map")
_TRAINS = ("kvo+dex", "dex_only", "kvo_only", "lora+dex", "lora", "adapter")


def fail(what: str) -> DexError:
    return DexError(what, reason="ADAPTER_MISMATCH", category="USER", code="FAILED_PRECONDITION")


@dataclasses.dataclass(frozen=True)
class Artefact:
    """A checked folder. tensors: by key without PEFT's prefix ("model.layers.3.self_attn.dex.w_d"), as stored, on the CPU."""

    folder: pathlib.Path
    config: dict[str, Any]  # adapter_config.json
    provenance: dict[str, Any]  # the hashes and job_id: of config, of a LoRA of provenance.json, or empty
    tensors: dict[str, torch.Tensor]
    content_sha256: str  # of checksums.json; empty for a folder that PEFT saved

    @property
    def train(self) -> str:
        return "lora" if self.config["peft_type"] == "LORA" else str(self.config["train"])

    @property
    def form(self) -> str:
        return str(self.config.get("form", "none"))

    @property
    def has_branch(self) -> bool:
        return self.form != "none"

    @property
    def keeps_state(self) -> bool:
        """The branch reads a mean of the tokens before."""
        return self.form in ("prefix_mean", "uniform_map")

    @property
    def lora(self) -> dict[str, Any]:
        """r, alpha, target_modules and use_rslora of either layout; empty without LoRA."""
        if self.config["peft_type"] == "LORA":
            return {"r": self.config["r"], "alpha": self.config["lora_alpha"],
                    "target_modules": list(self.config["target_modules"]), "use_rslora": self.config.get("use_rslora", False)}
        return dict(self.config.get("lora", {}))

    def of_layer(self, layer: int) -> dict[str, torch.Tensor]:
        """The tensors of a layer by their keys below it ("self_attn.dex.w_d")."""
        place = f"model.layers.{layer}."
        return {key.removeprefix(place): tensor for key, tensor in self.tensors.items() if key.startswith(place)}

    def why_not_foldable(self) -> str:
        """Why it can't go into plain weights, with the way out; empty: it can (method.md §3.6)."""
        if self.keeps_state:
            return f"form {self.form} keeps state between tokens; it can't be folded, use it attached"
        if self.config.get("bottleneck_activation", "none") != "none":
            return (f"a bottleneck with activation {self.config['bottleneck_activation']} is not linear; it can't be folded, "
                    "use it attached")
        if self.train == "adapter":
            return "method adapter acts between two products; it can't be folded, use it attached"
        return ""


def read(folder: Any) -> Artefact:
    """Reads `folder` (client.adapters.download) and checks all that needs no model. Raises DexError ADAPTER_MISMATCH or
    ARTIFACT_CORRUPT that names file or key, what was expected and what was found."""
    folder = pathlib.Path(folder)
    if (folder / "config.json").is_file():
        raise fail(f"{folder} is a whole model (class MODEL), not an adapter: AutoModelForCausalLM.from_pretrained loads it")
    config = _json(folder / "adapter_config.json")
    plain_lora = config.get("peft_type") == "LORA"
    if not plain_lora and config.get("peft_type") != "DEX":
        raise fail(f"{folder}/adapter_config.json: peft_type must be DEX or LORA, got {config.get('peft_type')!r}")
    content = ""
    if (folder / "checksums.json").is_file():
        for name, expected in checksums(folder).items():
            found = sha256_of(folder / name)
            if found != expected:
                raise DexError(f"{folder / name}: SHA-256 {found}, but checksums.json says {expected}; download it again",
                               reason="ARTIFACT_CORRUPT", category="SYSTEM", code="DATA_LOSS")
        content = sha256_of(folder / "checksums.json")
    elif not plain_lora:
        raise fail(f"{folder}/checksums.json is missing: not a finished adapter")
    provenance = _json(folder / "provenance.json") if plain_lora and content else {} if plain_lora else config
    _require_known(folder, config, plain_lora)
    stored = load_file(folder / "adapter_model.safetensors")
    for key, tensor in stored.items():
        if not key.startswith(PREFIX):
            raise fail(f"{folder}/adapter_model.safetensors: tensor {key} does not begin with {PREFIX}")
        if not torch.isfinite(tensor).all():
            raise fail(f"{folder}/adapter_model.safetensors: tensor {key} has values that are not finite")
    return Artefact(folder, config, provenance, {key.removeprefix(PREFIX): value for key, value in stored.items()}, content)


def _json(path: pathlib.Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise fail(f"{path} can't be read as JSON ({error})") from error
    if not isinstance(said, dict):
        raise fail(f"{path} must be a JSON object")
    return said


def _require_known(folder: pathlib.Path, config: dict[str, Any], plain_lora: bool) -> None:
    where = f"{folder}/adapter_config.json"
    if plain_lora:
        # What PEFT can say and our jobs do not: PEFT itself loads such a folder.
        for key in ("rank_pattern", "alpha_pattern", "use_dora", "modules_to_save", "lora_bias", "fan_in_fan_out",
                    "exclude_modules", "trainable_token_indices"):
            if config.get(key):
                raise fail(f"{where}: {key} is not supported here; load the folder with peft.PeftModel.from_pretrained")
        if not isinstance(config.get("target_modules"), list) or config.get("bias", "none") != "none":
            raise fail(f"{where}: target_modules must be a list and bias \"none\"; load the folder with "
                       "peft.PeftModel.from_pretrained")
        return
    if config.get("dex_format_version") != 1:
        raise fail(f"{where}: dex_format_version must be 1, got {config.get('dex_format_version')!r}; update dex-client")
    for key, known in (("form", _FORMS), ("train", _TRAINS)):
        if config.get(key) not in known:
            raise fail(f"{where}: {key} must be one of {', '.join(known)}, got {config.get(key)!r}; update dex-client")
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in config.get("lambda", [None])):
        raise fail(f"{where}: lambda must be a list of finite numbers")


def stored_dtype(config: dict[str, Any]) -> torch.dtype:
    return _DTYPES[config.get("dtype", "float32")]


def weights_sha256(folder: pathlib.Path) -> str:
    """base_weights_sha256 of a model's folder, as the platform makes it (worker/model/weight_files.cc): of model.safetensors,
    or of `<sha256>  <file>` lines of the index's files in name order."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values()))
    else:
        names = ["model.safetensors"]
    files = [folder / name for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise fail(f"{folder} lacks {', '.join(missing) or 'weights'}, which the adapter's base is compared by")
    if names == ["model.safetensors"]:
        return sha256_of(files[0])
    lines = "".join(f"{sha256_of(file)}  {file.name}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()
