#!/usr/bin/env python3
"""A folded export is a plain model to transformers, for every family of base models and every option that folds:

    fold_test.py BIN DATA [--all]      # build/bin and tests/data

`dex-engine fold` makes the export, AutoModelForCausalLM loads it with nothing missing or left over, and its
log-probabilities must be those of `dex-engine score --adapter` and those of transformers with the same adapter written
down here (adapters.py; LoRA: PEFT itself). Config and tokenizer must say what the base's do. What can't be folded is
refused by its sentence and served as an adapter. A checkpoint of dex-trainer (full, full+dex) loads just so. On families
that subtract heads by themselves (DiffLlama) no branch has a meaning: LoRA, kvo_only and full are what folds or is whole.

A family gets a third of the branches, another third than the family before; with --all each gets all of them.
"""

import concurrent.futures
import copy
import dataclasses
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import peft
import tokenizers
import torch
import transformers
from safetensors.torch import load_file

import adapters

DATA_SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "data/model"
sys.path.append(str(DATA_SCRIPTS))
import make_families  # noqa: E402

LIMIT = 1e-4
LENGTH = 48  # beyond mistral_window's 7 tokens and llama3's 32 of its pretraining
TEMPLATE = "{% for message in messages %}<s>{{ message['content'] }}</s>{% endfor %}"
# How the base's folder looks, as published models do: in shards, in bf16, with the config.json of transformers 4.
SHARDED = {"llama_linear", "mistral", "qwen2", "qwen3_biased", "diffllama"}
BF16, OLD_CONFIG = {"mistral_window", "qwen2", "diffllama_biased"}, {"llama3"}
LINEARS = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
LEFT_BEHIND = "pytorch_model.bin.index.json"  # of weights that are not there


@dataclasses.dataclass(frozen=True)
class Base:
    folder: pathlib.Path
    model: torch.nn.Module

    def tokens(self):
        return [(7919 * i * i + 31 * i + 5) % self.model.config.vocab_size for i in range(LENGTH)]


class Programs:
    def __init__(self, folder):
        self.folder = folder

    def run(self, name, *arguments):
        return subprocess.run([self.folder / name, *arguments], capture_output=True, text=True)

    def checked(self, *arguments):
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return json.loads(done.stdout)

    def score(self, base, *arguments):
        tokens = ",".join(map(str, base.tokens()))
        return self.checked("dex-engine", "score", "--model", base.folder, "--dtype", "f32", "--threads", "1",
                            "--tokens", tokens, *arguments)

    def fold(self, base, adapter, out, *arguments):
        return self.checked("dex-engine", "fold", "--model", base.folder, "--adapter", adapter, "--out", out,
                            *arguments)


def load(folder, dtype=torch.float32):
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    assert not any(found.values()), f"{folder}: {found}"
    return model.eval()


def scores(model, tokens):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens])).logits[0].double()
    chosen = torch.log_softmax(logits, -1)[range(len(tokens) - 1), tokens[1:]]
    return chosen.tolist()


def largest(found, expected):
    return max(abs(a - b) for a, b in zip(found, expected, strict=True))


def expect_close(name, found, expected):
    worst = largest(found, expected)
    assert math.isfinite(worst) and worst < LIMIT, f"{name}: a log-probability differs by {worst}"
    return worst


def add_companions(folder, vocabulary):
    """A tokenizer with a chat template, and what else lies beside weights."""
    words = {text: i for i, text in enumerate(["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "ab"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(words, merges=[("a", "b")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    assert len(words) <= vocabulary
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>",
                                                eos_token="</s>", chat_template=TEMPLATE)
    fast.save_pretrained(folder)
    transformers.GenerationConfig(do_sample=True, temperature=0.6, eos_token_id=[2, 3]).save_pretrained(folder)
    for name in ("LICENSE", "README.md", "merges.txt", "vocab.json", "tokenizer.model"):
        (folder / name).write_text(f"not empty: {name}")
    (folder / LEFT_BEHIND).write_text("{}")


def as_transformers_4(path):
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config |= {"torch_dtype": config.pop("dtype"), "rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    path.write_text(json.dumps(config, indent=2))


def make_base(name, folder, data):
    if name == "tied":
        folder.mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(data / "model/tied" / file, folder)
    else:
        model, _ = make_families.build((make_families.FAMILIES | make_families.DIFFERENTIAL)[name])
        model.to(torch.bfloat16 if name in BF16 else torch.float32)
        model.save_pretrained(folder, max_shard_size="9KB" if name in SHARDED else "1GB")
        assert (folder / "model.safetensors.index.json").exists() == (name in SHARDED)
    if name in OLD_CONFIG:
        as_transformers_4(folder / "config.json")
    base = Base(folder, load(folder))
    add_companions(folder, base.model.config.vocab_size)
    return base


def said_by(folder):
    """What transformers reads in a folder beside weights; the dtype is the weights'."""
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "a b z"}]
    return {"config": {key: value for key, value in config.items() if key not in ("dtype", "_name_or_path")},
            "generation": transformers.GenerationConfig.from_pretrained(folder).to_dict(),
            "class": type(tokenizer).__name__, "ids": tokenizer("a c x 7")["input_ids"],
            "special": tokenizer.special_tokens_map, "chat": tokenizer.apply_chat_template(messages, tokenize=False)}


def expect_same_companions(base, out, dtype):
    carried = {file.name for file in base.folder.iterdir()} - {LEFT_BEHIND}
    carried = {name for name in carried if not name.endswith((".safetensors", ".safetensors.index.json"))}
    found = {file.name for file in out.iterdir()}
    assert found == carried | {"model.safetensors", "fold_certificate.json"}, found ^ carried
    for name in carried - {"config.json", "fold_certificate.json"}:
        assert (out / name).read_bytes() == (base.folder / name).read_bytes(), name
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (base.folder, out))
    key = "torch_dtype" if "torch_dtype" in before else "dtype"
    assert after == before | {key: dtype}, f"{after} from {before}"
    assert said_by(out) == said_by(base.folder)
    assert json.loads((out / "fold_certificate.json").read_text())["dtype"] == dtype


def check(programs, base, name, adapter, expected, out):
    """An adapter folded and attached, by us and by transformers."""
    with concurrent.futures.ThreadPoolExecutor() as both:  # starting a program takes longer than its work
        score = both.submit(programs.score, base, "--adapter", adapter)
        report = programs.fold(base, adapter, out, "--dtype", "f32")
        attached = score.result()
    assert report["largest_logit_difference"] <= LIMIT, f"{name}: {report}"
    folded = scores(load(out), base.tokens())
    plain = scores(base.model, base.tokens())
    assert largest(expected, plain) > 0.05, f"{name}: the adapter changes nothing"
    return max(expect_close(f"{name}, export against engine", folded, attached),
               expect_close(f"{name}, export against transformers", folded, expected))


def check_case(programs, base, case, seed, folder):
    tensors = adapters.write(folder / "adapter", case, base.folder, base.model, seed)
    expected = scores(adapters.adapted(base.model, case, tensors), base.tokens())
    return check(programs, base, f"{base.folder.name}: {case}", folder / "adapter", expected, folder / "out")


def check_lora(programs, base, folder):
    config = peft.LoraConfig(r=3, lora_alpha=5, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=LINEARS)
    torch.manual_seed(17)
    adapted = peft.get_peft_model(copy.deepcopy(base.model), config).eval()
    adapted.save_pretrained(folder / "adapter")
    expected = scores(adapted, base.tokens())
    return check(programs, base, f"{base.folder.name}: lora", folder / "adapter", expected, folder / "out")


def check_stored_type(programs, base, adapter, wide, out):
    """Without --dtype the export is in the base's type: the fp32 one, rounded once."""
    report = programs.fold(base, adapter, out)
    dtype = "bfloat16" if base.folder.name in BF16 else "float32"
    expect_same_companions(base, out, dtype)
    assert report["dtype"] == dtype and load(out, "auto").dtype == getattr(torch, dtype), report
    exact, stored = load_file(wide / "model.safetensors"), load_file(out / "model.safetensors")
    assert exact.keys() == stored.keys()
    for name, tensor in stored.items():
        assert torch.equal(tensor, exact[name].to(getattr(torch, dtype))), name


def check_family(programs, name, turn, everything, data, folder):
    base = make_base(name, folder / name, data)
    worst = check_lora(programs, base, folder / "lora")
    expect_same_companions(base, folder / "lora/out", "float32")
    check_stored_type(programs, base, folder / "lora/adapter", folder / "lora/out", folder / "stored")
    differential = name in make_families.DIFFERENTIAL
    cases = [adapters.Case("none", "kvo_only")] if differential else list(adapters.foldable(turn, everything))
    for i, case in enumerate(cases):
        worst = max(worst, check_case(programs, base, case, 100 * turn + i, folder / str(i)))
    print(f"{name}: {len(cases) + 1} adapters, largest difference of a log-probability {worst:.2e}", flush=True)
    return base


def check_folded_again(programs, base, folder):
    """An export is a base like any other: its own exports say nothing of its origin."""
    first = adapters.Case("paper", "dex_only", "shared")
    check_case(programs, base, first, 1, folder / "first")
    again = Base(folder / "first/out", load(folder / "first/out"))
    check_case(programs, again, first, 2, folder / "second")
    expect_same_companions(again, folder / "second/out", "float32")


def expect_refused(programs, base, adapter, out, *said):
    arguments = ["--adapter", adapter] if adapter else []
    done = programs.run("dex-engine", "fold", "--model", base.folder, *arguments, "--out", out)
    assert done.returncode == 1 and all(text in done.stderr for text in said), f"expected {said}, got {done}"
    assert done.stdout == "" and done.stderr.count("\n") == 1, done


def check_slash(programs, base, adapter, folder):
    """--out as a shell completes it."""
    programs.fold(base, adapter, f"{folder}/slash/")
    assert load(folder / "slash") and not list(folder.glob("slash*.tmp"))


def check_refusals(programs, base, data, folder):
    count = 0
    for count, (case, reason) in enumerate(adapters.UNFOLDABLE, 1):
        adapter = folder / f"refused{count}"
        adapters.write(adapter, case, base.folder, base.model, count)
        expect_refused(programs, base, adapter, folder / "out",
                       f"dex-engine: [fold] {reason}; it can't be folded, serve it as an adapter\n")
        assert largest(programs.score(base, "--adapter", adapter), scores(base.model, base.tokens())) > 0.05, case
    foreign = Base(data / "train/model", None)
    expect_refused(programs, base, None, folder / "out", "--adapter: name the folder to fold in")
    good = folder / "good"
    adapters.write(good, adapters.Case("paper", "dex_only", "shared"), base.folder, base.model, 1)
    expect_refused(programs, foreign, good, folder / "out", "expected")
    assert not list(folder.glob("out*"))
    (folder / "out").mkdir()
    expect_refused(programs, base, good, folder / "out", "exists")
    assert not list((folder / "out").iterdir()) and not (folder / "out.tmp").exists()
    check_slash(programs, base, good, folder)
    print(f"{count} options that don't fold are refused and served")


def check_checkpoint(programs, base, rows, folder, name, method):
    """Methods that train all weights publish a checkpoint: the branch is in it, and there is nothing to fold."""
    folder.mkdir()
    spec = {"modelDir": str(base.folder), "trainingPath": str(rows), "threads": 1, "attemptDir": str(folder),
            "spec": {"seed": "5", **method, "validationSplit": 0,
                     "hyperparameters": {"maxSteps": 4, "maxSeqLength": 64, "batchSize": 4, "learningRate": 1e-2}}}
    (folder / "spec.json").write_text(json.dumps(spec))
    done = programs.run("dex-trainer", "--spec", folder / "spec.json")
    assert done.returncode == 0, done
    trained = Base(folder / "final", load(folder / "final"))
    found = scores(trained.model, trained.tokens())
    assert largest(found, scores(base.model, trained.tokens())) > 0.05, f"{name} changed nothing"
    worst = expect_close(name, found, programs.score(trained))
    expect_refused(programs, base, folder / "final", folder / "out", "is a whole model (class MODEL), not an adapter")
    print(f"{name}: checkpoint, largest difference of a log-probability {worst:.2e}")


def check_differential(programs, name, data, folder):
    """A family that subtracts heads by itself, and a checkpoint of all its weights, λ's vectors among them."""
    folder.mkdir()
    base = check_family(programs, name, 0, False, data, folder)
    adapter = folder / "branch"
    adapters.write(adapter, adapters.Case("paper", "dex_only", "shared"), base.folder, base.model, 1)
    expect_refused(programs, base, adapter, folder / "never", "train it with kvo_only, lora, adapter or full")
    rows = folder / "rows.jsonl"
    sequences = [[(31 * i * i + 7 * i * n + n) % base.model.config.vocab_size for i in range(24)] for n in range(16)]
    rows.write_text("".join(json.dumps({"input_ids": ids, "labels": ids}) + "\n" for ids in sequences))
    check_checkpoint(programs, base, rows, folder / "full", f"full on {name}", {"full": {}})
    before, after = (load(place).state_dict() for place in (base.folder, folder / "full/final"))
    assert not any(torch.equal(before[key], after[key]) for key in before if "lambda_" in key), "λ was not trained"


def main():
    programs, data, everything = Programs(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), "--all" in sys.argv
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)  # PEFT's own
    names = [*make_families.FAMILIES, "tied"]
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        for name in make_families.DIFFERENTIAL:
            check_differential(programs, name, data, folder / name)
        for turn, name in enumerate(names):
            (folder / f"family{turn}").mkdir()
            base = check_family(programs, name, turn, everything, data, folder / f"family{turn}")
        check_folded_again(programs, base, folder / "again")
        (folder / "refusals").mkdir()
        check_refusals(programs, base, data, folder / "refusals")
        base, rows = Base(data / "train/model", load(data / "train/model")), data / "train/rows.jsonl"
        check_checkpoint(programs, base, rows, folder / "full", "full", {"full": {}})
        strength = {"schedule": "SCHEDULE_CONSTANT", "value": 0.4}
        check_checkpoint(programs, base, rows, folder / "full_dex", "full+dex",
                         {"dex": {"train": "TRAIN_FULL_DEX", "lambda": strength}})


if __name__ == "__main__":
    main()
