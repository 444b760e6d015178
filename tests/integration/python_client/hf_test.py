"""dex_client.hf against dex-engine, against a second writing of method.md (tests/integration/fold/adapters.py) and against
method.md's worked numbers: every form of adapter that a job publishes, attached, scaled, detached and folded."""

import copy
import json
import math
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="deploy/setup/peers installs torch and transformers")

from dex_fixtures import BIN, ROOT  # noqa: E402

sys.path.append(str(ROOT / "tests/integration/fold"))
import adapters  # noqa: E402
import fold_test  # noqa: E402
from dex_client import DexError, hf  # noqa: E402

DATA = ROOT / "tests/data"
LIMIT = 1e-4  # nats, of a log-probability, fp32 on both sides
FOLDABLE = list(adapters.foldable(0, everything=True)) + [adapters.Case("none", "kvo_only")]
OTHERS = [case for case, _ in adapters.UNFOLDABLE] + [
    adapters.Case("prefix_mean", "kvo+dex", "bottleneck", "per_head", sign="plus"),
    adapters.Case("prefix_mean", "lora+dex", "dense"), adapters.Case("uniform_map", "dex_only", sign="plus", soft_floor=0.25),
    adapters.Case("paper", "dex_only", "bottleneck", "per_head", "gelu")]


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """Families by name: tied and grouped heads, biases and shards, norms of queries and keys."""
    folder = tmp_path_factory.mktemp("bases")
    return {name: fold_test.make_base(name, folder / name, DATA) for name in ("tied", "qwen2", "qwen3_biased")}


def programs():
    return fold_test.Programs(BIN)


def served(base, adapter, *more):
    return programs().score(base, "--adapter", adapter, *more)


def fresh(base):
    model = copy.deepcopy(base.model)
    model.config._name_or_path = str(base.folder)
    return model


def own(model, base):
    return fold_test.scores(model, base.tokens())


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("number", range(len(FOLDABLE + OTHERS)), ids=lambda number: str((FOLDABLE + OTHERS)[number]))
def test_attached_it_gives_what_the_engine_serves(bases, tmp_path, number):
    case, base = (FOLDABLE + OTHERS)[number], list(bases.values())[number % len(bases)]  # families in turn
    tensors = adapters.write(tmp_path / "adapter", case, base.folder, base.model, seed=number + 3)
    model = fresh(base)
    handle = hf.attach(model, tmp_path / "adapter")
    found = own(model, base)
    assert fold_test.largest(found, served(base, tmp_path / "adapter")) < LIMIT
    if case in FOLDABLE:
        assert fold_test.largest(found, own(adapters.adapted(base.model, case, tensors), base)) < LIMIT
    assert fold_test.largest(found, own(base.model, base)) > 10 * LIMIT, "the adapter is too weak to tell it from its base"
    assert handle.detach() is model
    assert same_weights(model, base.model) and own(model, base) == own(base.model, base)


@pytest.mark.parametrize("case", [FOLDABLE[0], FOLDABLE[5], OTHERS[0], OTHERS[1]], ids=str)
def test_scale_is_the_requests_lambda_scale(bases, tmp_path, case):
    base = bases["tied"]
    adapters.write(tmp_path / "adapter", case, base.folder, base.model, seed=3)
    with hf.attach(fresh(base), tmp_path / "adapter", scale=0.5) as handle:
        assert fold_test.largest(own(handle.model, base), served(base, tmp_path / "adapter", "--lambda-scale", "0.5")) < LIMIT
        handle.scale = 0
        assert fold_test.largest(own(handle.model, base), served(base, tmp_path / "adapter", "--lambda-scale", "0")) < LIMIT
        if case.train == "dex_only":
            assert own(handle.model, base) == own(base.model, base)
        with pytest.raises(DexError, match="between 0 and 1, got 1.5"):
            handle.scale = 1.5
    assert same_weights(handle.model, base.model)


@pytest.mark.parametrize("case", FOLDABLE, ids=str)
def test_folded_it_is_a_plain_model_with_the_same_numbers(bases, tmp_path, case):
    base = bases["qwen2"]
    adapters.write(tmp_path / "adapter", case, base.folder, base.model, seed=5)
    model = fresh(base)
    hf.attach(model, tmp_path / "adapter")
    attached = own(model, base)
    assert hf.fold(model) is model
    assert fold_test.largest(own(model, base), attached) < LIMIT
    plain = type(model)(model.config)
    plain.load_state_dict(model.state_dict())
    assert own(plain.eval(), base) == own(model, base), "something beside the weights acts"
    hf.attach(model, tmp_path / "adapter").detach()  # nothing is attached any more


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_what_is_not_linear_a_token_is_not_folded(bases, tmp_path, case):
    base = bases["tied"]
    adapters.write(tmp_path / "adapter", case, base.folder, base.model, seed=5)
    model = fresh(base)
    handle = hf.attach(model, tmp_path / "adapter")
    before = own(model, base)
    with pytest.raises(DexError, match="can't be folded, use it attached") as refused:
        hf.fold(model)
    assert refused.value.reason == "NOT_FOLDABLE" and own(model, base) == before
    handle.detach()


@pytest.mark.parametrize("case", OTHERS[:2] + FOLDABLE[:1], ids=str)
def test_generation_with_a_cache_and_padding_is_the_full_forward(bases, tmp_path, case):
    base = bases["tied"]
    adapters.write(tmp_path / "adapter", case, base.folder, base.model, seed=7)
    tokens, pad = base.tokens()[:20], 0
    with hf.attach(fresh(base), tmp_path / "adapter") as handle, torch.no_grad():
        model = handle.model
        full = model(torch.tensor([tokens]), use_cache=False).logits[0]
        first = model(torch.tensor([tokens[:7]]), use_cache=True)
        parts, cache = [first.logits[0]], first.past_key_values
        for token in tokens[7:]:  # one after the other, as generate() does
            step = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            parts.append(step.logits[0])
        assert (torch.cat(parts) - full).abs().max() < LIMIT
        padded = torch.tensor([[pad] * 5 + tokens[:15], tokens])
        mask = torch.ones_like(padded)
        mask[0, :5] = 0
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        both = model(padded, attention_mask=mask, position_ids=positions, use_cache=False).logits
        assert (both[0, 5:] - full[:15]).abs().max() < LIMIT and (both[1] - full).abs().max() < LIMIT


def test_a_cache_that_it_did_not_fill_is_refused(bases, tmp_path):
    base = bases["tied"]
    adapters.write(tmp_path / "adapter", OTHERS[0], base.folder, base.model, seed=7)
    model = fresh(base)
    with torch.no_grad():
        cache = model(torch.tensor([base.tokens()[:4]]), use_cache=True).past_key_values
        with hf.attach(model, tmp_path / "adapter"), pytest.raises(DexError, match="a cache of 4 tokens was not filled"):
            model(torch.tensor([[1]]), past_key_values=cache)
        packed = torch.tensor([[0, 1, 2, 0, 1, 2]])
        with hf.attach(model, tmp_path / "adapter"), pytest.raises(DexError, match="packed texts"):
            model(torch.tensor([base.tokens()[:6]]), position_ids=packed, use_cache=False)


METHODS = [{"dex": {}}, {"dex": {"form": "FORM_HEAD_MEAN", "projection": "PROJECTION_BOTTLENECK", "sign": "SIGN_PLUS",
                                 "bottleneck": {"scope": "SCOPE_PER_HEAD"}}},
           {"dex": {"form": "FORM_PREFIX_MEAN", "train": "TRAIN_DEX_ONLY"}},
           {"dex": {"train": "TRAIN_LORA_DEX", "lora": {"r": 2, "alpha": 4}}}, {"kvoOnly": {}}, {"lora": {"r": 4, "alpha": 8}},
           {"lora": {"r": 2, "alpha": 5, "useRslora": True, "targetModules": ["q_proj", "gate_proj", "up_proj", "down_proj"]}},
           {"adapter": {"size": 4, "activation": "ACTIVATION_GELU"}}]


@pytest.mark.parametrize("first_layer", [0, 1])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: json.dumps(method))
def test_what_a_job_publishes_is_attached(tmp_path, method, first_layer):
    model_dir = DATA / "train/model"
    spec = {"modelDir": str(model_dir), "trainingPath": str(DATA / "train/rows.jsonl"), "threads": 1, "attemptDir": str(tmp_path),
            "spec": {"seed": "5", **method, "validationSplit": 0,
                     "hyperparameters": {"maxSteps": 6, "maxSeqLength": 64, "batchSize": 4, "learningRate": 1e-2,
                                         "firstLayer": first_layer}}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run([BIN / "dex-trainer", "--spec", tmp_path / "spec.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    base = fold_test.Base(model_dir, fold_test.load(model_dir))
    model = fresh(base)
    artefact = hf.attach(model, tmp_path / "final").artefact
    assert artefact.content_sha256
    assert fold_test.largest(own(model, base), served(base, tmp_path / "final")) < LIMIT


def damaged(folder, name):
    """A copy of the adapter with one thing wrong, and the words that must say so."""
    sums = folder / "checksums.json"
    config = json.loads((folder / "adapter_config.json").read_text())
    if name == "bytes":
        with open(folder / "adapter_model.safetensors", "r+b") as file:
            file.seek(-1, 2)
            file.write(b"\x7f")
        return "adapter_model.safetensors: SHA-256"
    if name == "extra file":
        (folder / "more.txt").write_text("x")
        return "unknown \\['more.txt'\\]"
    if name == "unfinished":
        sums.unlink()
        return "checksums.json is missing: not a finished adapter"
    changes = {"base": ({"base_weights_sha256": "0" * 64}, "was made for another base"),
               "heads": ({"selected_heads": [[99]] * len(config["selected_heads"])}, "selected_heads of layer 0 must be 0 to"),
               "form": ({"form": "spiral"}, "form must be one of none, paper"),
               "gate": ({"form": "head_mean"}, "expected tensor model.layers.0.self_attn.dex.gate, found none"),
               "extra tensor": ({"train": "dex_only"}, "belongs to nothing that adapter_config.json says"),
               "layers": ({"lambda": [0.5]}, "lambda has 1 layers, the model"),
               "nan": ({"lambda": [math.nan] * len(config["lambda"])}, "lambda must be a list of finite numbers")}
    change, words = changes[name]
    (folder / "adapter_config.json").write_text(json.dumps(config | change))
    said = json.loads(sums.read_text())
    said["adapter_config.json"] = adapters.sha256(folder / "adapter_config.json")
    sums.write_text(json.dumps(said))
    return words


@pytest.mark.parametrize("name", ["bytes", "extra file", "unfinished", "base", "heads", "form", "gate", "extra tensor", "layers",
                                  "nan"])
def test_what_does_not_fit_is_refused_before_anything_changes(bases, tmp_path, name):
    base = bases["tied"]
    adapters.write(tmp_path / "good", adapters.Case("paper", "kvo+dex", "shared"), base.folder, base.model, seed=1)
    shutil.copytree(tmp_path / "good", tmp_path / "bad")
    words = damaged(tmp_path / "bad", name)
    model = fresh(base)
    with pytest.raises(DexError, match=words):
        hf.attach(model, tmp_path / "bad")
    assert same_weights(model, base.model) and own(model, base) == own(base.model, base)
    hf.attach(model, tmp_path / "good")
    with pytest.raises(DexError, match="attached already"):
        hf.attach(model, tmp_path / "good")


def test_worked_numbers_of_the_method():
    """method.md §11.1, §11.2, §11.4."""
    o = torch.tensor([[1.0, 2], [3, -1]], dtype=torch.float64)
    w_d = torch.tensor([[0.5, -1], [2, 0.25]], dtype=torch.float64)
    w_o = torch.tensor([[1.0, 0, 2, -1], [0.5, -1, 0, 3], [2, 1, -1, 0.5]], dtype=torch.float64)

    def branch(form, strength, **tensors):
        return hf.Branch(form, 2, torch.tensor(strength, dtype=torch.float64), **tensors)

    def close(found, expected):
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)

    gate = torch.tensor([0.5, 0.5], dtype=torch.float64)
    close(branch("paper", [0.0, -0.3], w_d=w_d).apply(o), [[1, 2], [3.15, -0.025]])
    close(branch("paper", [-0.3, -0.3], w_d=w_d).apply(o), [[-0.35, 2.15], [3.15, -0.025]])
    close(branch("paper", [0.0, 0.3], w_d=w_d).apply(o), [[1, 2], [2.85, -1.975]])
    per_head = torch.stack([w_d, torch.tensor([[1.0, 0], [-0.5, 2]], dtype=torch.float64)])
    close(branch("paper", [-0.3, -0.3], w_d=per_head).apply(o), [[-0.35, 2.15], [1.95, -0.4]])
    close(branch("head_mean", [0.0, 0.3], w_d=w_d, gate=gate).apply(o), [[1, 2], [2.55, -2.05]])
    close(branch("paper", [0.0, -0.3], w_d=w_d).folded(w_o), [[1, 0, 1.4, -2.125], [0.5, -1, 0.9, 2.775], [2, 1, -0.7, 1.0625]])
    close(branch("head_mean", [0.0, 0.3], w_d=w_d, gate=gate).folded(w_o),
          [[0.85, 0.075, 2.45, 0.2], [0.5, -1.225, -0.9, 3], [2.075, 0.9625, -1.225, -0.1]])
    v_mean = torch.tensor([[1.0, 2], [2, 0.5], [1, 2]], dtype=torch.float64)[:, None]
    one_head = hf.Branch("uniform_map", 1, torch.tensor([-0.3], dtype=torch.float64), gate=torch.ones(1, dtype=torch.float64))
    o_rows = torch.tensor([[1.0, 2], [2, 0.5], [0, 3]], dtype=torch.float64)[:, None]
    close(one_head.apply(o_rows, v_mean)[:, 0], [[0.7, 1.4], [1.4, 0.35], [-0.3, 2.4]])
