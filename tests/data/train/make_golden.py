#!/usr/bin/env python3
"""Trains a tiny Llama with transformers and torch.optim and stores the curve: the other half of acceptance item 20.

    .deps/peers/bin/python tests/data/train/make_golden.py [CASE …]      # of all cases, or anew of these alone

Writes, beside this script: model/ (config.json, model.safetensors), rows.jsonl and golden.json. Every update sees all
rows, each alone and unpadded, so the curve depends on no data order. The formulas are written here a second time on
purpose (method.md 2.1-2.3, 3.1-3.3); nothing of the project is imported.
"""

import json
import math
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
UPDATES, LAYERS, HEADS, HEAD_DIM = 20, 2, 4, 8

CASES = {
    "paper": dict(form="paper", projection="shared", sign=-1, schedule="paper_eq4", anneal=10, w_d_init="zeros",
                  rates=(3e-3, 2e-3, 1e-2), weight_decay=0.0, heads=[[0, 3], [1, 2]]),
    "head_mean": dict(form="head_mean", projection="per_head", sign=1, schedule="seed_cosine", start=0.1, end=0.5,
                      anneal=15, w_d_init="zeros", rates=(2e-3, 4e-3, 1e-2), weight_decay=0.05, heads=[[1], [0, 1, 3]]),
    "kvo_only": dict(form="none", rates=(3e-3, 1e-3, 1e-3), weight_decay=0.0, heads=[[], []]),
    "lora": dict(train="lora", form="none", rates=(1e-2, 1e-3, 1e-3), weight_decay=0.02, heads=[[], []],
                 targets=["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"], r=4, alpha=12, seed=3),
    "adapter": dict(train="adapter", form="none", rates=(5e-3, 1e-3, 1e-3), weight_decay=0.0, heads=[[], []],
                    size=6, activation="gelu", seed=3),
    "full": dict(train="full", form="none", rates=(2e-3, 1e-3, 1e-3), weight_decay=0.01, heads=[[], []]),
    "lora+dex": dict(train="lora+dex", form="paper", projection="shared", sign=-1, schedule="paper_eq4", anneal=10,
                     w_d_init="zeros", rates=(1e-2, 2e-3, 1e-2), weight_decay=0.0, heads=[[0, 3], [1, 2]],
                     targets=["k_proj", "v_proj", "o_proj"], r=3, alpha=6, seed=3),
    "full+dex": dict(train="full+dex", form="paper", projection="shared", sign=-1, schedule="paper_eq4", anneal=10,
                     w_d_init="zeros", rates=(2e-3, 2e-3, 1e-2), weight_decay=0.0, heads=[[0, 3], [1, 2]]),
    "prefix_mean": dict(form="prefix_mean", projection="shared", sign=1, schedule="seed_cosine", start=0.1, end=0.5,
                        anneal=15, w_d_init="zeros", rates=(2e-3, 4e-3, 1e-2), weight_decay=0.0, heads=[[0, 2], [1, 3]]),
    "bottleneck_silu": dict(form="paper", projection="bottleneck", scope="per_head", activation="silu", width_ratio=1.5,
                            sign=-1, schedule="learned", learn_init=0.2, anneal=0, w_d_init="zeros",
                            rates=(2e-3, 4e-3, 1e-2), weight_decay=0.0, heads=[[0, 1, 3], [2]], seed=3),
    "dex_only": dict(train="dex_only", form="paper", projection="shared", sign=-1, schedule="paper_eq4", anneal=10,
                     w_d_init="linear", rates=(1e-3, 1e-2, 2e-2), weight_decay=0.0, heads=[[0, 3], [1, 2]], seed=3),
    "diff_v2": dict(train="diff_attention", form="none", version="V2", mix_in_ratio=0.3, rates=(3e-3, 1e-3, 1e-3),
                    weight_decay=0.0, heads=[[], []]),
    "diff_v1": dict(train="diff_attention", form="none", version="V1", mix_in_ratio=0.3, rates=(3e-3, 1e-3, 1e-3),
                    weight_decay=0.0, heads=[[], []], seed=3),
    "uniform_map": dict(form="uniform_map", projection="shared", sign=-1, schedule="seed_cosine", start=0.1, end=0.5,
                        anneal=15, w_d_init="zeros", rates=(2e-3, 2e-2, 1e-2), weight_decay=0.0,
                        heads=[[0, 3], [1, 2]]),
    "dense": dict(form="paper", projection="dense", sign=1, schedule="seed_cosine", start=0.05, end=0.3, anneal=15,
                  w_d_init="zeros", rates=(2e-3, 4e-3, 1e-2), weight_decay=0.0, heads=[[0, 2, 3], [1]]),
}


def make_model(folder):
    torch.manual_seed(2025)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=2, head_dim=HEAD_DIM, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0,
        tie_word_embeddings=True, initializer_range=0.15, bos_token_id=1, eos_token_id=2)
    model = transformers.LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    folder.mkdir(exist_ok=True)
    tensors = {name: p.detach().clone().contiguous() for name, p in model.named_parameters()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    plain = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=97, hidden_size=32,
                 intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=2,
                 head_dim=HEAD_DIM, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0,
                 tie_word_embeddings=True, hidden_act="silu", attention_bias=False, mlp_bias=False, bos_token_id=1,
                 eos_token_id=2, torch_dtype="float32")
    (folder / "config.json").write_text(json.dumps(plain, indent=1) + "\n")
    return model


def make_rows():
    generator = torch.Generator().manual_seed(7)
    rows = []
    for r in range(12):
        length = int(torch.randint(4, 40, (), generator=generator))
        ids = [int(torch.randint(0, 97, (), generator=generator))]
        while len(ids) < length:
            jump = int(torch.randint(0, 10, (), generator=generator)) == 0
            ids.append(int(torch.randint(0, 97, (), generator=generator)) if jump else (ids[-1] * 5 + 3) % 97)
        labels = list(ids)
        if r % 3 == 2:
            labels[: length // 2] = [-100] * (length // 2)
        rows.append({"input_ids": ids, "labels": labels})
    (HERE / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC'11): four words."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def units(count, seed, stream):
    """U[0, 1), number i from word i of the stream."""
    words = []
    for block in range((count + 3) // 4):
        words += philox((block & 0xFFFFFFFF, block >> 32, stream & 0xFFFFFFFF, stream >> 32),
                        (seed & 0xFFFFFFFF, seed >> 32))
    return [word * 2.0**-32 for word in words[:count]]


def uniform(shape, bound, seed, stream):
    return torch.tensor([bound * (2 * u - 1) for u in units(math.prod(shape), seed, stream)]).float().view(shape)


def normal(count, deviation, seed, stream):
    """N(0, deviation^2) by Box and Muller, number i from the units 2i and 2i + 1."""
    u = units(2 * count, seed, stream)
    return torch.tensor([deviation * math.sqrt(-2 * math.log(1 - u[i])) * math.cos(2 * math.pi * u[i + 1])
                         for i in range(0, 2 * count, 2)]).float()


class Branch(torch.nn.Module):
    """A pre-hook of o_proj: O_h + s*lambda*m_h*D_h."""

    def __init__(self, case, layer):
        super().__init__()
        self.case, self.layer, self.step = case, layer, 0
        self.make_projection()
        if case["form"] in ("head_mean", "prefix_mean", "uniform_map"):
            self.gate = torch.nn.Parameter(torch.zeros(HEADS))
        if case["schedule"] in ("paper_eq4", "learned"):
            self.lambda_learn = torch.nn.Parameter(torch.full((1,), case.get("learn_init", 0.0)))
        mask = torch.zeros(HEADS)
        mask[case["heads"][layer]] = 1
        self.register_buffer("mask", mask)

    def keep_values(self, v_proj, inputs, values):
        self.values = values  # [1, T, K*d]

    def make_projection(self):
        case, stream = self.case, 0x64657800 + 2 * self.layer  # w_d's stream, w_down's is the next
        if case["form"] == "uniform_map":
            return
        if case["projection"] == "bottleneck":
            inner = math.floor(case["width_ratio"] * HEAD_DIM + 0.5)
            self.w_down = torch.nn.Parameter(uniform((HEADS, HEAD_DIM, inner), HEAD_DIM**-0.5, case["seed"], stream + 1))
            self.w_up = torch.nn.Parameter(torch.zeros(HEADS, inner, HEAD_DIM))
            return
        wide = HEADS * HEAD_DIM
        shape = {"shared": (HEAD_DIM, HEAD_DIM), "per_head": (HEADS, HEAD_DIM, HEAD_DIM), "dense": (wide, wide)}[
            case["projection"]]
        linear = case["w_d_init"] == "linear"
        start = uniform(shape, HEAD_DIM**-0.5, case["seed"], stream) if linear else torch.zeros(shape)
        self.w_d = torch.nn.Parameter(start)

    def projected(self, o):
        if self.case["projection"] == "bottleneck":
            inner = torch.nn.functional.silu(torch.einsum("bthd,hdm->bthm", o, self.w_down))
            return torch.einsum("bthm,hmd->bthd", inner, self.w_up)
        if self.case["projection"] == "dense":
            return (o.flatten(-2) @ self.w_d).unflatten(-1, (HEADS, HEAD_DIM))
        return o @ self.w_d if self.w_d.dim() == 2 else torch.einsum("bthd,hde->bthe", o, self.w_d)

    def difference(self, o):
        seen = torch.arange(1, o.shape[1] + 1)[:, None, None]  # tokens up to and including this one
        if self.case["form"] == "uniform_map":
            means = self.values.unflatten(-1, (-1, HEAD_DIM)).cumsum(dim=1) / seen
            return self.gate[:, None] * means.repeat_interleave(HEADS // means.shape[2], dim=2)
        difference = self.projected(o)
        if self.case["form"] == "head_mean":
            difference = difference - self.gate[:, None] * o.mean(dim=-2, keepdim=True)
        if self.case["form"] == "prefix_mean":
            difference = difference - self.gate[:, None] * o.cumsum(dim=1) / seen
        return difference

    def strength(self):
        t, big_t = self.step, self.case["anneal"]
        if self.case["schedule"] == "learned":
            return self.lambda_learn
        if self.case["schedule"] == "paper_eq4":
            alpha = min(1.0, t / big_t)
            init = 0.8 - 0.6 * math.exp(-0.3 * self.layer)
            return (1 - alpha) * (t / big_t) * init + alpha * self.lambda_learn
        start, end = self.case["start"], self.case["end"]
        return start + (end - start) * 0.5 * (1 - math.cos(math.pi * min(t / big_t, 1.0)))

    def forward(self, o_proj, inputs):
        o = inputs[0].unflatten(-1, (HEADS, HEAD_DIM))
        out = o + self.case["sign"] * self.strength() * self.mask[:, None] * self.difference(o)
        return (out.flatten(-2),)


class SecondMap(torch.nn.Module):
    """Attention of method diff with init ZERO (method.md 8.4): O_h - mix*share_h*O2_h, where share is sigmoid(X
    W_lambda^T) in V2, and in V1, whose second map has keys of its own, exp(q1.k1) - exp(q2.k2) + lambda_init. W_Q2 and
    W_K2 stand alone here, not between the rows of W_Q and W_K."""

    def __init__(self, attention, case, layer):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            getattr(attention, f"{name}_proj") for name in ("q", "k", "v", "o"))
        self.q2 = torch.nn.Parameter(torch.zeros_like(self.q_proj.weight))
        self.case, self.step, self.layer = case, 0, layer
        if case["version"] == "V2":
            self.w_lambda = torch.nn.Parameter(torch.zeros(HEADS, self.q_proj.in_features))
            return
        self.k2 = torch.nn.Parameter(self.k_proj.weight.detach().clone())
        streams = [(0x64696666 << 32) + 4 * layer + place for place in range(4)]
        self.vectors = torch.nn.ParameterList([normal(HEAD_DIM, 0.1, case["seed"], stream) for stream in streams])

    def share(self, x):
        """[1, H or 1, T or 1, 1]."""
        if self.case["version"] == "V2":
            return torch.sigmoid(x @ self.w_lambda.T).transpose(1, 2)[..., None]
        q1, k1, q2, k2 = self.vectors
        return torch.exp(q1 @ k1) - torch.exp(q2 @ k2) + 0.8 - 0.6 * math.exp(-0.3 * self.layer)

    def forward(self, hidden_states, position_embeddings, **_):
        x, (cos, sin) = hidden_states, position_embeddings  # [1, T, D], [1, T, d]
        length = x.shape[1]

        def turned(rows):
            heads = rows.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
            low, high = heads.chunk(2, dim=-1)
            return heads * cos[:, None] + torch.cat([-high, low], dim=-1) * sin[:, None]

        def for_each_query(heads):
            return heads.repeat_interleave(HEADS // heads.shape[1], dim=1)

        k = for_each_query(turned(self.k_proj(x)))
        k2 = for_each_query(turned(x @ self.k2.T)) if self.case["version"] == "V1" else k
        v = for_each_query(self.v_proj(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2))
        future = torch.ones(length, length).triu(1).bool()

        def mixed(queries, keys):
            scores = queries @ keys.transpose(2, 3) / math.sqrt(HEAD_DIM)
            return scores.masked_fill(future, -math.inf).softmax(-1) @ v

        mix = min(1.0, self.step / (self.case["mix_in_ratio"] * UPDATES))
        o = mixed(turned(self.q_proj(x)), k) - mix * self.share(x) * mixed(turned(x @ self.q2.T), k2)
        return self.o_proj(o.transpose(1, 2).flatten(-2)), None


LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def add_lora(model, case):
    """y + alpha/r x A^T B^T by hooks on the linears; A and B in a list."""
    added = []
    for index, layer in enumerate(model.model.layers):
        for name in case["targets"]:
            linear = getattr(layer.self_attn, name, None) or getattr(layer.mlp, name)
            stream = (0x6C6F7261 << 32) + index * len(LINEARS) + LINEARS.index(name)
            a = torch.nn.Parameter(uniform((case["r"], linear.in_features), linear.in_features**-0.5, case["seed"], stream))
            b = torch.nn.Parameter(torch.zeros(linear.out_features, case["r"]))
            linear.register_forward_hook(
                lambda module, inputs, y, a=a, b=b: y + case["alpha"] / case["r"] * inputs[0] @ a.T @ b.T)
            added += [a, b]
    return added


def add_adapters(model, case):
    """h + up(gelu(down(h))) by hooks on o_proj and down_proj."""
    added = []
    act = {"gelu": torch.nn.functional.gelu, "relu": torch.nn.functional.relu}[case["activation"]]
    for index, layer in enumerate(model.model.layers):
        for place, linear in enumerate((layer.self_attn.o_proj, layer.mlp.down_proj)):
            width = linear.out_features
            down = torch.nn.Parameter(uniform((case["size"], width), width**-0.5, case["seed"],
                                              (0x61647074 << 32) + 2 * index + place))
            bias, up = torch.nn.Parameter(torch.zeros(case["size"])), torch.nn.Parameter(torch.zeros(width, case["size"]))
            up_bias = torch.nn.Parameter(torch.zeros(width))
            linear.register_forward_hook(
                lambda module, inputs, h, p=(down, bias, up, up_bias): h + act(h @ p[0].T + p[1]) @ p[2].T + p[3])
            added += [down, bias, up, up_bias]
    return added


def rate_factor(u, n, ratio=0.03):
    warmup = max(1, math.floor(ratio * n + 0.5))
    if u < warmup:
        return (u + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (u - warmup) / (n - warmup)))


def train(case, rows):
    model = transformers.LlamaForCausalLM.from_pretrained(HERE / "model", dtype=torch.float32,
                                                          attn_implementation="eager")
    base, branch, lambdas, branches, stepped = [], [], [], [], []
    how = case.get("train", "kvo")
    if how.startswith("diff"):
        for index, layer in enumerate(model.model.layers):
            layer.self_attn = SecondMap(layer.self_attn, case, index)
            stepped.append(layer.self_attn)
    for name, parameter in model.named_parameters():
        kvo = how == "kvo" and any(part in name for part in ("k_proj", "v_proj", "o_proj"))
        attention = how == "diff_attention" and ".self_attn." in name
        parameter.requires_grad = kvo or attention or how.startswith("full")
        if parameter.requires_grad:
            base.append(parameter)
    if how.startswith("lora"):
        base += add_lora(model, case)
    if how == "adapter":
        base += add_adapters(model, case)
    if case["form"] != "none":
        for index, layer in enumerate(model.model.layers):
            branches.append(Branch(case, index))
            layer.self_attn.v_proj.register_forward_hook(branches[-1].keep_values)
            layer.self_attn.o_proj.register_forward_pre_hook(branches[-1])
        stepped += branches
        for each in branches:
            for name, parameter in each.named_parameters():
                (lambdas if name == "lambda_learn" else branch).append(parameter)
    groups = [dict(params=params, peak=peak, weight_decay=decay) for params, peak, decay in
              zip((base, branch, lambdas), case["rates"], (case["weight_decay"], 0.0, 0.0)) if params]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    trained = base + branch + lambdas
    losses, norms = [], []
    for u in range(UPDATES):
        for each in stepped:
            each.step = u
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * rate_factor(u, UPDATES)
        total, count = 0.0, 0
        for row in rows:
            logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0, :-1]
            labels = torch.tensor(row["labels"][1:])
            total = total + torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
            count += int((labels != -100).sum())
        loss = total / count
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    result = dict(case, losses=losses, norms=norms)
    result["lambda_learn"] = [parameter.item() for parameter in lambdas]
    result["o_proj_norm"] = [layer.self_attn.o_proj.weight.norm().item() for layer in model.model.layers]
    maps = [each.w_d if hasattr(each, "w_d") else each.w_up for each in branches if case["form"] != "uniform_map"]
    result["map_norm"] = [each.norm().item() for each in maps]  # of w_d, of a bottleneck w_up
    result["gate_norm"] = [each.gate.norm().item() for each in branches if hasattr(each, "gate")]
    result["embed_norm"] = model.model.embed_tokens.weight.norm().item()
    result["base_norm"] = math.sqrt(sum(parameter.detach().norm().item() ** 2 for parameter in base))
    return result


def main():
    torch.set_num_threads(1)
    make_model(HERE / "model")
    rows = make_rows()
    known = json.loads((HERE / "golden.json").read_text())["cases"] if sys.argv[1:] else {}
    anew = sys.argv[1:] or CASES
    golden = {"source": {"torch": torch.__version__, "transformers": transformers.__version__}, "updates": UPDATES,
              "cases": {name: train(case, rows) if name in anew else known[name] for name, case in CASES.items()}}
    (HERE / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
