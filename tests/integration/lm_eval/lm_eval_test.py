#!/usr/bin/env python3
"""lm-evaluation-harness on an adapter that the platform serves, through client/python:

    lm_eval_test.py BIN DEPS      # build/bin and .deps

Log-likelihoods must be those that transformers computes on the folded export: once by the few lines here, once by the
harness's own model for transformers. Completions must be the same texts, and what is wrongly asked is refused in words.
The harness's local-completions, unmodified, must give the same numbers through the HTTP door.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TASKS = ["dex_choices", "dex_rolling", "dex_completions"]
LIMIT = 1e-4  # nats, of the log-likelihood of a whole text, fp32 on both sides (measured 2e-6 to 2e-5)
LIMIT_HF = 1e-3  # of 500 tokens, which the harness's hf model adds up in fp32 (measured 2e-4)


def install_client(folder):
    """Installs client/python as people do, from a copy: a build leaves files beside its sources."""
    copy, site = folder / "checkout", folder / "site"
    shutil.copytree(ROOT / "proto", copy / "proto")
    shutil.copytree(ROOT / "client/python", copy / "client/python", ignore=shutil.ignore_patterns("__pycache__", "v1", "rpc", "build"))
    pip = pathlib.Path(sys.prefix).parent / "bin/python"  # the peers'; this environment has none
    subprocess.run([pip, "-m", "pip", "--python", sys.executable, "install", "--disable-pip-version-check", "--quiet",
                    "--no-index", "--no-deps", "--no-build-isolation", "--target", site, copy / "client/python"], check=True)
    return site


def read(name):
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


class Reference:
    """transformers on a folder, in fp32: method.md's and the harness's definitions in a few lines of their own."""

    def __init__(self, folder, most):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                       attn_implementation="eager").eval()
        self.most = most  # tokens in all

    def tokens(self, context, continuation):
        """Ids of the pair, and how many of them are the context's."""
        blanks = len(context) - len(context.rstrip())
        context, continuation = context[: len(context) - blanks], context[len(context) - blanks:] + continuation
        if not context:
            return [self.tokenizer.bos_token_id, *self.tokenizer.encode(continuation)], 1
        before, whole = self.tokenizer.encode(context), self.tokenizer.encode(context + continuation)
        return before + whole[len(before):], len(before)

    def pair(self, context, continuation):
        ids, begin = self.tokens(context, continuation)
        scored = len(ids) - begin
        return self.last(ids[-self.most:], scored)

    def last(self, ids, scored):
        """Log-likelihood of the last `scored` ids after those before them, and whether each is the likeliest."""
        with torch.no_grad():
            rows = torch.log_softmax(self.model(torch.tensor([ids[:-1]])).logits[0, -scored:].double(), -1)
        wanted = torch.tensor(ids[-scored:])
        return rows[torch.arange(scored), wanted].sum().item(), bool((rows.argmax(-1) == wanted).all())

    def rolling(self, text):
        """Each token once, in windows of `most` tokens, of which the first conditions only; the last one is full too."""
        ids = [self.tokenizer.bos_token_id, *self.tokenizer.encode(text)]
        total, done = 0.0, 1
        while done < len(ids):
            end = min(len(ids), done + self.most - 1)
            total += self.last(ids[max(0, end - self.most):end], end - done)[0]
            done = end
        return total


def samples(results, task):
    """By document: what the model answered to each of its requests, in order."""
    rows = sorted(results["samples"][task], key=lambda row: row["doc_id"])
    return [[answer[0] for answer in row["resps"]] for row in rows]


def as_pair(answer):
    return float(answer[0]), str(answer[1]) == "True"


def difference(name, found, expected):
    worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
    print(f"{name}: largest difference of {len(found)} log-likelihoods {worst:.2e}")
    return worst


def evaluate(model, arguments, batch_size=1, tasks=TASKS):
    return lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=tasks, bootstrap_iters=0, batch_size=batch_size,
                                   task_manager=TaskManager(include_path=str(HERE), include_defaults=False))


def check_data(reference):
    """The data hold what they say they do, with this tokenizer and this context."""
    by_name = {row["about"]: row for row in read("choices.jsonl")}
    joined = by_name["other tokens when joined"]
    encode = reference.tokenizer.encode
    assert any(encode(joined["context"]) + encode(choice) != encode(joined["context"] + choice) for choice in joined["choices"])
    assert len(encode(by_name["a context longer than the model's"]["context"])) > 2 * reference.most
    assert by_name["nothing before it"]["context"] == ""
    assert len(encode({row["about"]: row for row in read("rolling.jsonl")}["several windows"]["text"])) > 2 * reference.most


def check_likelihoods(served, by_hf, reference, base):
    expected = [[reference.pair(row["context"], choice) for choice in row["choices"]] for row in read("choices.jsonl")]
    plain = [[base.pair(row["context"], choice) for choice in row["choices"]] for row in read("choices.jsonl")]
    for name, results, limit in (("served", served, LIMIT), ("the harness's hf model", by_hf, LIMIT_HF)):
        found = [[as_pair(answer) for answer in answers] for answers in samples(results, "dex_choices")]
        flat = [pair for row in found for pair in row]
        wanted = [pair for row in expected for pair in row]
        assert difference(f"{name}, pairs", [p[0] for p in flat], [p[0] for p in wanted]) < LIMIT
        assert [p[1] for p in flat] == [p[1] for p in wanted], f"{name}: greedy {flat} instead of {wanted}"
        rolled = [float(answers[0]) for answers in samples(results, "dex_rolling")]
        assert difference(f"{name}, rolling", rolled, [reference.rolling(row["text"]) for row in read("rolling.jsonl")]) < limit
    away = min(abs(a[0] - b[0]) for x, y in zip(expected, plain, strict=True) for a, b in zip(x, y, strict=True))
    print(f"smallest difference between adapter and base {away:.2e}")
    assert away > 10 * LIMIT, "the adapter is too weak to tell it from its base"


def check_greedy(server, adapter, reference, LM):
    """A continuation that is the likeliest is told apart from one that is not, in a random model too."""
    prompt = "The capital of France is"
    ids = reference.tokenizer.encode(prompt)
    with torch.no_grad():
        best = reference.model(torch.tensor([ids])).logits[0, -1].argmax().item()
    lm = LM(model=adapter, tokenizer=str(reference.tokenizer.name_or_path), server=server)
    answers = lm._loglikelihood_tokens([(None, ids, [best]), (None, ids, [best, ids[0]])], disable_tqdm=True)
    assert answers[0][1] and not answers[1][1], answers
    assert abs(answers[0][0] - reference.last([*ids, best], 1)[0]) < LIMIT


def refusals(server, adapter, tokenizer, other_tokenizer):
    """Wrong arguments → words that must be in the sentence."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        good = {"model": adapter, "tokenizer": str(tokenizer), "server": server}
        yield {**good, "model": "ft:no-such"}, ["'ft:no-such'", "dexctl adapters list"]
        yield {**good, "model": None}, ["model= is missing", "dexctl models list"]
        yield {**good, "tokenizer": None}, ["tokenizer= is missing", "models.json"]
        yield {**good, "tokenizer": str(other_tokenizer)}, ["is not the tokenizer", "sha256"]
        yield {**good, "tokenizer": "HuggingFaceTB/SmolLM2"}, ["tokenizer.json is missing", "models.json"]
        yield {**good, "tokeniser": "x"}, ["'tokeniser'", "did you mean tokenizer?"]
        yield {**good, "max_length": 128}, ["between 1 and 127", "got 128"]
        yield {**good, "batch_size": "many"}, ["--batch_size", "'many'"]
        yield {**good, "max_batch_size": 8}, ["--max_batch_size", "leave it out"]
        yield {**good, "timeout_seconds": 601}, ["timeout_seconds", "601"]
        yield {**good, "server": nobody}, [nobody, "server=", "start dexd"]


def check_refusals(server, adapter, tokenizer, folder, LM, DexError):
    other = folder / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")
    for arguments, words in refusals(server, adapter, tokenizer, other):
        expect_refusal(DexError, words, lambda: LM(**arguments))
    lm = LM(model=adapter, tokenizer=str(tokenizer), server=server)

    def request(kind, *args):
        return Instance(request_type=kind, doc={}, arguments=args, idx=0)

    for context, continuation in (("A context", ""), ("Hel", "lo")):
        expect_refusal(DexError, [repr(continuation), "adds no token"],
                       lambda: lm.loglikelihood([request("loglikelihood", context, continuation)]))
    expect_refusal(DexError, ["tokens is too long", "127"],
                   lambda: lm.loglikelihood([request("loglikelihood", "A", " word" * 200)]))
    for options, words in (({"num_beams": 4}, ["'num_beams'", "top_p"]), ({"max_gen_toks": 127}, ["max_gen_toks=127", "127 tokens"]),
                           ({"do_sample": True, "temperature": 3, "max_gen_toks": 4}, ["temperature", "between 0 and 2"])):
        expect_refusal(DexError, words, lambda: lm.generate_until([request("generate_until", "A prompt", options)]))


def check_local_completions(platform, adapter, tokenizer):
    """The harness's own local-completions on the HTTP door gives the numbers of gRPC.

    It keeps a token of the context for the one that it has generated, when it scores a second one; client/python is told to
    do the same.
    """
    url = f"http://{json.loads((platform.data / 'endpoints.json').read_text())['http']}/v1/completions"
    room = tiny_platform.CONTEXT
    by_grpc = evaluate("dex", {"model": adapter, "tokenizer": str(tokenizer), "server": platform.server, "max_length": room - 2})
    texts_by_grpc = evaluate("dex", {"model": adapter, "tokenizer": str(tokenizer), "server": platform.server,
                                     "max_length": room - 1}, tasks=["dex_completions"])
    by_http = evaluate("local-completions", {
        "model": adapter, "base_url": url, "tokenizer_backend": "huggingface", "tokenizer": str(tokenizer),
        "max_length": room, "num_concurrent": 1, "max_retries": 1}, batch_size=4)
    pairs = {name: [as_pair(answer) for row in samples(results, "dex_choices") for answer in row]
             for name, results in (("grpc", by_grpc), ("http", by_http))}
    assert difference("local-completions, pairs", *([p[0] for p in pairs[name]] for name in ("http", "grpc"))) < LIMIT
    assert [p[1] for p in pairs["http"]] == [p[1] for p in pairs["grpc"]], pairs
    rolled = [[float(row[0]) for row in samples(results, "dex_rolling")] for results in (by_http, by_grpc)]
    assert difference("local-completions, rolling", *rolled) < LIMIT
    # Half a character at the end is the server's to show there, and the tokenizer's here.
    texts = [[row[0].rstrip("\ufffd") for row in samples(results, "dex_completions")] for results in (by_http, texts_by_grpc)]
    assert texts[0] == texts[1], texts
    assert utils.check_remote_tokenizer_support(url), "the harness does not find /tokenizer_info and /tokenize"


def expect_refusal(DexError, words, call):
    try:
        call()
    except DexError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error} does not say {missing}"
        return
    raise AssertionError(f"nothing was refused where {words} was expected")


def check_more_stops_than_the_server_takes(server, adapter, tokenizer, LM):
    """20 stops, one of them longer than the server takes: the text ends where the one that occurs says."""
    lm = LM(model=adapter, tokenizer=str(tokenizer), server=server)

    def complete(until):
        options = {"until": until, "max_gen_toks": 12}
        return lm.generate_until([Instance(request_type="generate_until", doc={}, arguments=("One", options), idx=0)])[0]

    whole = complete([])
    assert len(whole) > 4, whole
    stop = whole[3:6]
    assert complete([f"no such {n}" for n in range(19)] + ["y" * 300, stop]) == whole[: whole.index(stop)]


def check_the_rest(platform, adapter, tokenizer, LM, DexError):
    """The server is found as dexctl finds it; a seed repeats a text; numbers of two models are never mixed."""
    os.environ["DEX_DATA_DIR"] = str(platform.data)
    lm = LM(model=adapter, tokenizer=str(tokenizer), batch_size="auto")
    del os.environ["DEX_DATA_DIR"]

    def sample(seed):
        options = {"until": [], "max_gen_toks": 12, "do_sample": True, "temperature": 1.5, "seed": seed}
        request = Instance(request_type="generate_until", doc={}, arguments=("One", options), idx=0)
        return lm.generate_until([request] * 9)

    assert len(set(sample(1))) == 1 and sample(1) == sample(1) != sample(2)
    chat = lm.apply_chat_template([{"role": "user", "content": "Hello"}])
    assert chat.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"), chat

    ids, served = lm.tok_encode("One two"), lm._served
    expect_refusal(DexError, [adapter, "was asked"],
                   lambda: lm._platform.score(dataclasses.replace(served, is_adapter=False), ids, 1))
    lm._platform._fingerprint = "of yesterday's weights"
    expect_refusal(DexError, [adapter, "changed while", "of yesterday's weights"],
                   lambda: lm._platform.score(served, ids, 1))


def check_command(server, adapter, tokenizer, site, results, folder):
    """The one command of client/python/dex_lm_eval/README.md."""
    out = folder / "out"
    subprocess.run([sys.executable, "-m", "dex_lm_eval", "--model", "dex", "--model_args",
                    f"model={adapter},tokenizer={tokenizer},server={server}", "--tasks", "dex_choices", "--include_path", HERE,
                    "--batch_size", "4", "--output_path", out], check=True, env={**os.environ, "PYTHONPATH": str(site)},
                   stdout=subprocess.DEVNULL)
    (file,) = out.rglob("results_*.json")
    found = json.loads(file.read_text())["results"]["dex_choices"]
    for metric in ("acc,none", "acc_norm,none"):
        assert found[metric] == results["results"]["dex_choices"][metric], (metric, found)
    refused = subprocess.run([sys.executable, "-m", "dex_lm_eval", "--model", "dex", "--model_args",
                              f"model=nobody,tokenizer={tokenizer},server={server}", "--tasks", "dex_choices",
                              "--include_path", HERE], env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True)
    last = refused.stderr.splitlines()[-1]
    assert refused.returncode == 1 and last.startswith("dex-lm-eval: error: ") and "'nobody'" in last, refused.stderr


def main():
    binaries, deps = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        os.environ |= {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
        site = install_client(folder)
        sys.path.insert(0, str(site))
        load_libraries()
        from dex_lm_eval import DexError, DexLM

        os.chdir(HERE)  # the tasks name their data from here
        torch.set_num_threads(1)
        models = tiny_platform.write_model(folder / "models", deps / "models/smollm2-135m-instruct")
        with tiny_platform.Platform(binaries, folder, models) as platform:
            job = platform.train()
            adapter, share = job["fine_tuned_model"], job["branch_effect"]["value"]
            print(f"{adapter}: the branch is {share:.3f} of the heads' output")
            assert share > 0.01, "the branch is too weak to matter"
            folded = platform.fold(adapter)
            reference = Reference(folded, tiny_platform.CONTEXT)
            base = Reference(platform.model, tiny_platform.CONTEXT)
            check_data(reference)
            server, tokenizer = platform.server, platform.model
            served = evaluate("dex", {"model": adapter, "tokenizer": str(tokenizer), "server": server})
            by_hf = evaluate("hf", {"pretrained": str(folded), "dtype": "float32", "device": "cpu",
                                    "max_length": tiny_platform.CONTEXT - 1})
            check_likelihoods(served, by_hf, reference, base)
            texts = samples(served, "dex_completions")
            assert texts == samples(by_hf, "dex_completions"), (texts, samples(by_hf, "dex_completions"))
            check_greedy(server, adapter, reference, DexLM)
            check_local_completions(platform, adapter, tokenizer)
            check_more_stops_than_the_server_takes(server, adapter, tokenizer, DexLM)
            check_the_rest(platform, adapter, tokenizer, DexLM, DexError)
            check_refusals(server, adapter, tokenizer, folder, DexLM, DexError)
            check_command(server, adapter, tokenizer, site, served, folder)


def load_libraries():
    """After the environment is set: they read it when they are imported."""
    global lm_eval, torch, transformers, tiny_platform, utils, Instance, TaskManager
    import lm_eval
    import torch
    import transformers
    from lm_eval import utils
    from lm_eval.api.instance import Instance
    from lm_eval.tasks import TaskManager

    import tiny_platform


if __name__ == "__main__":
    main()
