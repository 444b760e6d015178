"""Random adapters of our format (architecture.md §6) for any base model, and what they compute, written from method.md
§3.1, §3.2 and §7 on transformers' own model: independent of our code."""

import copy
import dataclasses
import hashlib
import json
import math

import torch
from safetensors.torch import save_file

PREFIX = "base_model.model."
KVO = ("k_proj", "v_proj", "o_proj")
RANK, ALPHA = 3, 5.0
LORA = [(f"self_attn.{name}", name) for name in ("q_proj", *KVO)]
LAMBDA = [0.37, -0.21, 0.45]  # one a layer
TRAINS, SIGNS, SCHEDULES = ("kvo+dex", "dex_only", "lora+dex"), ("minus", "plus"), ("constant", "paper_eq4")


@dataclasses.dataclass(frozen=True)
class Case:
    form: str
    train: str
    projection: str = ""
    scope: str = ""  # of a bottleneck
    activation: str = "none"
    sign: str = "minus"
    schedule: str = "constant"
    soft_floor: float = 0
    dtype: str = "float32"

    def __str__(self):
        activation = self.activation if self.activation != "none" else ""
        return " ".join(filter(None, [self.form, self.projection, self.scope, activation, self.train]))


SCOPES = ("shared", "per_head", "dense")
MAPS = [{"projection": name} for name in ("shared", "per_head", "dense")]
MAPS += [{"projection": "bottleneck", "scope": scope} for scope in SCOPES]
# head_mean over a dense map is paper over a dense map (method.md §3.2): no artefact has it.
BRANCHES = [{"form": form, **map_} for form in ("paper", "head_mean") for map_ in MAPS
            if (form, map_["projection"]) != ("head_mean", "dense")]


def foldable(turn, everything):
    """Branches that fold: every third one, or all. Over the families each meets both signs and every way of training,
    and each family meets every way of training."""
    for n, branch in enumerate(BRANCHES, turn):
        if everything or n % 3 == 0:
            yield Case(**branch, train=TRAINS[n // 3 % 3], sign=SIGNS[n // 3 % 2], schedule=SCHEDULES[turn % 2],
                       soft_floor=0.25 if n % 5 == 0 else 0, dtype="bfloat16" if n % 4 == 3 else "float32")
    yield Case("none", "kvo_only")


# One option of each kind that does not fold, with the reason that must be given; all of them: fold_test.cc.
UNFOLDABLE = [
    (Case("prefix_mean", "dex_only", "per_head", sign="plus"), "form prefix_mean keeps state between tokens"),
    (Case("uniform_map", "lora+dex"), "form uniform_map keeps state between tokens"),
    (Case("paper", "kvo+dex", "bottleneck", "shared", "silu"), "a bottleneck with activation silu is not linear"),
    (Case("head_mean", "dex_only", "bottleneck", "dense", "gelu"), "a bottleneck with activation gelu is not linear"),
    (Case("none", "adapter"), "method adapter acts between two products"),
]


def selected_heads(config):
    """Every other head, another half in the next layer; none in the third."""
    return [[head for head in range(config.num_attention_heads) if (head + layer) % 2 == 0] if layer < 2 else []
            for layer in range(config.num_hidden_layers)]


def branch_tensors(case, heads, width, normal):
    if case.form == "none":
        return {}
    tensors = {}
    wide = heads * width if "dense" in (case.projection, case.scope) else width
    many = [heads] if "per_head" in (case.projection, case.scope) else []
    if case.projection == "bottleneck":
        inner = max(1, math.floor(1.5 * wide + 0.5))
        tensors["w_down"] = normal([*many, wide, inner], wide**-0.5)
        tensors["w_up"] = normal([*many, inner, wide], inner**-0.5)
    elif case.projection:
        tensors["w_d"] = normal([*many, wide, wide], wide**-0.5)
    tensors = {key: value.to(getattr(torch, case.dtype)) for key, value in tensors.items()}
    if case.form != "paper":
        tensors["gate"] = normal([heads], 0.5)
    if case.schedule != "constant":
        tensors["lambda_learn"] = torch.full([1], 9.0)  # what acts is the config's λ
    return tensors


def random_tensors(case, model, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, scale):
        return torch.randn(shape, generator=generator) * scale

    config, tensors = model.config, {}
    if case.train.startswith("kvo"):
        for name, parameter in model.named_parameters():
            if name.split(".")[-2] in KVO:
                changed = parameter.detach() * (1 + normal(parameter.shape, 0.2))
                tensors[name] = changed.to(getattr(torch, case.dtype))
    for layer, block in enumerate(model.model.layers):
        place = f"model.layers.{layer}."
        for key, value in branch_tensors(case, config.num_attention_heads, block.self_attn.head_dim, normal).items():
            tensors[f"{place}self_attn.dex.{key}"] = value
        for path, _ in LORA if case.train.startswith("lora") else ():
            linear = block.get_submodule(path)
            tensors[f"{place}{path}.lora_A.weight"] = normal([RANK, linear.in_features], linear.in_features**-0.5)
            tensors[f"{place}{path}.lora_B.weight"] = normal([linear.out_features, RANK], 0.3)
        for part in ("self_attn", "mlp") if case.train == "adapter" else ():
            shapes = {"down.weight": [4, config.hidden_size], "down.bias": [4], "up.weight": [config.hidden_size, 4],
                      "up.bias": [config.hidden_size]}
            tensors |= {f"{place}{part}.adapter.{key}": normal(shape, 0.3) for key, shape in shapes.items()}
    return {PREFIX + name: value.contiguous() for name, value in tensors.items()}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def weights_sha256(model_dir):
    files = sorted(model_dir.glob("*.safetensors"))
    if [file.name for file in files] == ["model.safetensors"]:
        return sha256(files[0])
    return hashlib.sha256("".join(f"{sha256(file)}  {file.name}\n" for file in files).encode()).hexdigest()


def config_of(case, model_dir, config):
    schedules = {"constant": {"schedule": "constant", "value": 0.2},
                 "paper_eq4": {"schedule": "paper_eq4", "anneal_steps": 10, "init": "depth", "learn_init": 0}}
    template = model_dir / "chat_template.jinja"
    branch = case.form != "none"
    heads, lambdas = selected_heads(config), LAMBDA[:config.num_hidden_layers]
    said = {
        "peft_type": "DEX", "base_model_name_or_path": "random", "revision": "", "task_type": "CAUSAL_LM",
        "inference_mode": True, "dex_format_version": 1, "form": case.form, "train": case.train, "dtype": case.dtype,
        "selected_heads": heads if branch else [[] for _ in heads], "lambda": lambdas if branch else [0] * len(lambdas),
        "base_weights_sha256": weights_sha256(model_dir), "tokenizer_sha256": sha256(model_dir / "tokenizer.json"),
        "chat_template_sha256": sha256(template), "job_id": "", "metrics": {}, "branch_effect": {}}
    if branch:
        said |= {"sign": case.sign, "lambda_schedule": schedules[case.schedule], "soft_floor": case.soft_floor}
    if case.projection:
        said["projection"] = case.projection
    if case.scope:
        said |= {"bottleneck_scope": case.scope, "bottleneck_activation": case.activation, "width_ratio": 1.5}
    if case.train.startswith("lora"):
        said["lora"] = {"r": RANK, "alpha": ALPHA, "dropout": 0, "target_modules": [name for _, name in LORA],
                        "use_rslora": case.sign == "plus"}
    if case.train == "adapter":
        said["adapter"] = {"size": 4, "placement": "both", "activation": "relu"}
    return said


def write(folder, case, model_dir, model, seed):
    """Writes the artefact and returns its tensors."""
    tensors = random_tensors(case, model, seed)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config_of(case, model_dir, model.config)))
    sums = {file.name: sha256(file) for file in sorted(folder.iterdir())}
    (folder / "checksums.json").write_text(json.dumps(sums))
    return tensors


class Branch(torch.nn.Module):
    """O'_h = O_h + s·λ·m_h·D_h of one layer, before o_proj."""

    def __init__(self, case, layer, tensors, heads, chosen):
        super().__init__()
        self.gate = tensors.get("gate")
        self.map = tensors["w_d"] if "w_d" in tensors else tensors["w_down"] @ tensors["w_up"]
        self.strength = torch.full([heads, 1], float(case.soft_floor))
        self.strength[chosen] = 1
        self.strength *= LAMBDA[layer] * (-1 if case.sign == "minus" else 1)

    def projected(self, o):
        if self.map.dim() == 3:
            return torch.einsum("...hd,hde->...he", o, self.map)
        if self.map.shape[0] == o.shape[-1]:
            return o @ self.map
        return (o.flatten(-2) @ self.map).unflatten(-1, o.shape[-2:])

    def forward(self, o_proj, inputs):
        o = inputs[0].unflatten(-1, (len(self.strength), -1))
        difference = self.projected(o)
        if self.gate is not None:
            difference = difference - self.gate[:, None] * o.mean(-2, keepdim=True)
        return (o + self.strength * difference).flatten(-2)


def adapted(model, case, tensors):
    """transformers' model with an adapter that folds beside it."""
    model, config = copy.deepcopy(model), model.config
    tensors = {name.removeprefix(PREFIX): value.float() for name, value in tensors.items()}
    scale = ALPHA / (math.sqrt(RANK) if case.sign == "plus" else RANK)
    for name, parameter in model.named_parameters():
        if name in tensors:
            parameter.data = tensors[name]
        path = name.removesuffix(".weight")
        if f"{path}.lora_A.weight" in tensors:
            parameter.data += scale * tensors[f"{path}.lora_B.weight"] @ tensors[f"{path}.lora_A.weight"]
    for layer, block in enumerate(model.model.layers):
        place = f"model.layers.{layer}.self_attn.dex."
        own = {name.removeprefix(place): value for name, value in tensors.items() if name.startswith(place)}
        if own:
            branch = Branch(case, layer, own, config.num_attention_heads, selected_heads(config)[layer])
            block.self_attn.o_proj.register_forward_pre_hook(branch)
    return model
