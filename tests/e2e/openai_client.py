#!/usr/bin/env python3
"""The official openai package as its users have it, on a running platform:

    openai_client.py http://127.0.0.1:8080 MODEL DATA      # DATA: .deps/data

Upload, create, follow events, checkpoints, models, chat and completions (streamed and not, with log-probabilities and
echo), adapters, errors as the package's own exceptions, repeats. Every line that fails says what was expected.
"""

import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

import openai

BASE, MODEL, DATA = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
client = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0)
PROMPT = "def add(a, b):\n"


def expect_error(kind, code, call, param=None):
    try:
        call()
    except kind as error:
        assert error.code == code, f"{error.code} instead of {code}: {error}"
        assert param is None or error.param == param, f"param {error.param} instead of {param}: {error}"
        assert error.request_id, f"{error} has no x-request-id"
        assert error.response.headers["x-should-retry"] in ("true", "false")
        return error
    raise AssertionError(f"nothing was refused where {kind.__name__} {code} was expected")


def post(path, body, **headers):
    """What the package has no method for."""
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return reply.read().decode()


def close(a, b):
    """The same number from two batches: sums may be added up in another order."""
    return abs(a - b) < 0.02


def rows(side, count):
    with open(DATA / f"code.{side}.jsonl", encoding="utf-8") as file:
        return "".join(next(file) for _ in range(count)).encode()


def files():
    training = client.files.create(file=("train.jsonl", rows("train", 20)), purpose="fine-tune")
    assert training.status == "processed" and training.object == "file" and training.id.startswith("file-")
    assert client.files.wait_for_processing(training.id, poll_interval=0.1).status == "processed"
    validation = client.files.create(file=("valid.jsonl", rows("validation", 10)), purpose="fine-tune")
    bad = client.files.create(file=("bad.jsonl", b'{"text": "x"}\nnot json\n'), purpose="fine-tune")
    assert client.files.wait_for_processing(bad.id, poll_interval=0.1).status == "error"
    assert "line 2" in bad.status_details and "invalid_json" in bad.status_details, bad.status_details
    assert client.files.content(training.id).read() == rows("train", 20)
    listed = [file.id for file in client.files.list(limit=1)]  # pages of one, as many as there are
    assert listed == [bad.id, validation.id, training.id], listed
    assert [file.id for file in client.files.list(order="asc", limit=2)] == listed[::-1]
    assert [file.id for file in client.files.list(purpose="evals")] == []
    assert client.files.delete(bad.id).deleted
    expect_error(openai.NotFoundError, "resource_not_found", lambda: client.files.retrieve(bad.id))
    expect_error(openai.BadRequestError, "unsupported_parameter",
                 lambda: client.files.create(file=("x", b"{}"), purpose="batch"), "purpose")
    return training.id, validation.id


def job_arguments(training, validation):
    calibration = {"n_sequences": 2, "seq_length": 128}
    return {
        "model": MODEL, "training_file": training, "validation_file": validation, "suffix": "Client", "seed": 1,
        "metadata": {"who": "openai"},
        "method": {"type": "dex", "dex": {
            "preset": "code", "head_selection": {"calibration": calibration},
            "hyperparameters": {"max_steps": 6, "batch_size": 2, "max_seq_length": 128, "n_epochs": "auto"}}},
        "extra_body": {"dex": {"evaluation": {"max_tokens": 384, "every_steps": 2}, "checkpoints": {"every_steps": 2}}},
    }


def create(training, validation):
    arguments = job_arguments(training, validation)
    with_key = {**arguments, "extra_headers": {"Idempotency-Key": "the-same"}}
    first = client.fine_tuning.jobs.with_raw_response.create(**with_key)
    job = first.parse()
    assert job.object == "fine_tuning.job" and job.status in ("queued", "validating_files", "running"), job
    assert job.fine_tuned_model is None and job.finished_at is None and job.trained_tokens is None
    assert job.hyperparameters.batch_size == 2 and job.metadata == {"who": "openai"} and job.seed == 1
    again = client.fine_tuning.jobs.with_raw_response.create(**with_key)
    assert again.parse().id == job.id and again.headers["dex-replayed"] == "true"
    other = {**with_key, "seed": 2}
    expect_error(openai.ConflictError, "idempotency_conflict", lambda: client.fine_tuning.jobs.create(**other))

    # The package itself sends no key, but says that it repeats.
    def attempt(count):
        return client.fine_tuning.jobs.create(**{**arguments, "seed": 3},
                                              extra_headers={"x-stainless-retry-count": str(count)}).id

    second = attempt(0)
    assert attempt(1) == second != job.id
    third = attempt(0)
    assert third != second, "the same request made twice is two jobs"
    for waste in (second, third):
        client.fine_tuning.jobs.cancel(waste)
    return job.id


def refused_jobs(training):
    def make(**more):
        return lambda: client.fine_tuning.jobs.create(model=MODEL, training_file=training, **more)

    expect_error(openai.BadRequestError, "unknown_field", make(extra_body={"sufix": "x"}), "sufix")
    expect_error(openai.BadRequestError, "unsupported_parameter", make(method={"type": "dpo"}), "method.type")
    expect_error(openai.BadRequestError, "conflicting_fields",
                 make(hyperparameters={"n_epochs": 1},
                      method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 1}}}), "hyperparameters")
    expect_error(openai.NotFoundError, "model_not_found",
                 lambda: client.fine_tuning.jobs.create(model="gpt-4o-mini", training_file=training))
    expect_error(openai.NotFoundError, "resource_not_found", lambda: client.fine_tuning.jobs.retrieve("ftjob-none"))


def finished(job, seconds=300):
    end = time.monotonic() + seconds
    while (now := client.fine_tuning.jobs.retrieve(job)).status not in ("succeeded", "failed", "cancelled"):
        assert time.monotonic() < end, f"the job is still {now.status}: {now}"
        time.sleep(0.1)
    assert now.status == "succeeded", now
    return now


def follow(job, last=None):
    """Server-sent events until `event: end`."""
    request = urllib.request.Request(f"{BASE}/v1/fine_tuning/jobs/{job}/events/stream",
                                     headers={} if last is None else {"Last-Event-ID": str(last)})
    told, event = [], {}
    with urllib.request.urlopen(request, timeout=300) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name in ("id", "event", "data"):
                event[name] = value
            elif not name and event:
                if event["event"] == "end":
                    return told
                told.append((int(event["id"]), event["event"], json.loads(event["data"])))
                event = {}
    raise AssertionError("the stream ended without event: end")


def watch(job):
    told = follow(job)
    sequences = [sequence for sequence, _, _ in told]
    assert sequences == sorted(set(sequences)), sequences
    assert told[0][1] == "job_queued" and told[-1][1] == "job_complete", [event for _, event, _ in told]
    assert told[-1][2]["object"] == "fine_tuning.job.event"
    assert [s for s, _, _ in follow(job, sequences[4])] == sequences[5:]
    newest = client.fine_tuning.jobs.list_events(job, limit=3)
    assert [event.dex["sequence"] for event in newest.data] == sequences[::-1][:3]
    everything = [event.dex["sequence"] for event in client.fine_tuning.jobs.list_events(job, limit=3)]
    assert everything == sequences[::-1], everything
    figures = [event for event in client.fine_tuning.jobs.list_events(job, limit=1000) if event.type == "metrics"]
    assert figures and all("step" in event.data for event in figures)


def checkpoints(job):
    found = list(client.fine_tuning.jobs.checkpoints.list(job.id, limit=2))
    steps = [checkpoint.step_number for checkpoint in found]
    assert steps == sorted(set(steps), reverse=True) and 2 in steps, steps
    assert all(c.fine_tuning_job_id == job.id and c.metrics.step == c.step_number for c in found)
    assert any(c.metrics.valid_loss is not None and c.metrics.train_loss is not None for c in found), found


def results(job):
    files = [client.files.retrieve(file) for file in job.result_files]
    assert len(files) == 2 and all(file.purpose == "fine-tune-results" for file in files), files
    rows = client.files.content(files[0].id).text.splitlines()
    assert rows[0].startswith("step,epoch,train_loss,valid_loss") and len(rows) > 2, rows
    assert [file.id for file in client.files.list(purpose="fine-tune-results")][:2] == job.result_files


def models(adapter):
    listed = client.models.list().data
    assert listed[0].id == MODEL and adapter in [model.id for model in listed]
    assert client.models.retrieve(adapter).parent == MODEL
    expect_error(openai.NotFoundError, "model_not_found", lambda: client.models.retrieve("ft:none"))
    expect_error(openai.NotFoundError, "model_not_found", lambda: client.models.retrieve("gpt-4o"))


def chat(adapter):
    arguments = {"model": adapter, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 12, "seed": 7,
                 "logprobs": True, "top_logprobs": 2}
    raw = client.chat.completions.with_raw_response.create(**arguments)
    whole = raw.parse()
    assert whole.object == "chat.completion" and whole.model == adapter and whole.dex["adapter"]["id"] == adapter
    assert raw.headers["x-dex-adapter"] == adapter and len(raw.headers["x-dex-adapter-sha256"]) == 64
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert len(choice.logprobs.content) == whole.usage.completion_tokens
    assert all(len(entry.top_logprobs) >= 2 for entry in choice.logprobs.content)
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == choice.message.content
    assert chunks[-2].choices[0].finish_reason == choice.finish_reason
    base = client.chat.completions.with_raw_response.create(**{**arguments, "model": MODEL})
    assert "x-dex-adapter" not in base.headers and base.parse().dex["adapter"] is None
    choices = client.chat.completions.create(**{**arguments, "n": 3, "temperature": 2}).choices
    assert [c.index for c in choices] == [0, 1, 2] and len({c.message.content for c in choices}) > 1
    scaled = client.chat.completions.create(**arguments, extra_body={"dex_lambda_scale": 0.0})
    assert scaled.dex["adapter"]["dex_lambda_scale"] == 0


def completions(adapter):
    ids = json.loads(post("/tokenize", {"model": adapter, "prompt": PROMPT, "add_special_tokens": False}))["tokens"]
    assert json.loads(post("/detokenize", {"tokens": ids}))["prompt"] == PROMPT
    with urllib.request.urlopen(BASE + "/tokenizer_info") as reply:
        info = json.load(reply)
    assert info["eos_token"] and info["chat_template"], info
    # As lm-evaluation-harness asks, two at once.
    scored = client.completions.create(model=adapter, prompt=[ids, ids[:3]], max_tokens=1, temperature=0, logprobs=1, echo=True,
                                       seed=1234)
    assert [choice.index for choice in scored.choices] == [0, 1]
    for choice, prompt in zip(scored.choices, (ids, ids[:3]), strict=True):
        found = choice.logprobs
        assert len(found.token_logprobs) == len(prompt) + 1 == len(found.tokens) == len(found.top_logprobs)
        assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
        for token, number, top in list(zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True))[1:]:
            assert top[token] == number and number <= max(top.values())
        assert found.token_logprobs[-1] == max(found.top_logprobs[-1].values()), "the new token is the likeliest"
        assert found.text_offset == sorted(found.text_offset) and found.text_offset[0] == 0
    assert scored.choices[0].text.startswith(PROMPT)
    assert close(scored.choices[0].logprobs.token_logprobs[1], scored.choices[1].logprobs.token_logprobs[1])
    alone = client.completions.create(model=adapter, prompt=ids, max_tokens=0, logprobs=0, echo=True)
    pairs = zip(alone.choices[0].logprobs.token_logprobs, scored.choices[0].logprobs.token_logprobs[:-1], strict=True)
    assert all(a is b is None or close(a, b) for a, b in pairs)
    arguments = {"model": adapter, "prompt": PROMPT, "max_tokens": 12, "seed": 5, "n": 2}
    whole = client.completions.create(**arguments)
    texts = ["", ""]
    for chunk in client.completions.create(**arguments, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices], texts
    greedy = client.completions.create(model=adapter, prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text
    if len(greedy) > 4:
        stop = greedy[2:5]
        cut = client.completions.create(model=adapter, prompt=PROMPT, max_tokens=12, temperature=0,
                                        stop=[f"no such {n}" for n in range(6)] + [stop]).choices[0]
        assert cut.text == greedy[: greedy.index(stop)] and cut.finish_reason == "stop", cut


def refused_generations(adapter):
    def ask(**more):
        arguments = {"model": adapter, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **more}
        return lambda: client.chat.completions.create(**arguments)

    error = expect_error(openai.NotFoundError, "model_not_found", ask(model="ft:none"))
    assert error.type == "not_found_error"
    expect_error(openai.NotFoundError, "model_not_found", ask(model="ft:none", stream=True))
    expect_error(openai.BadRequestError, "unknown_field", ask(extra_body={"temprature": 1}), "temprature")
    expect_error(openai.BadRequestError, "unsupported_parameter", ask(tools=[{"type": "function"}]), "tools")
    expect_error(openai.BadRequestError, "value_out_of_range", ask(temperature=3), "temperature")
    expect_error(openai.BadRequestError, "context_length_exceeded", ask(max_tokens=100_000))
    for call in (lambda: client.embeddings.create(model=MODEL, input="x"), lambda: client.responses.create(model=MODEL, input="x")):
        try:
            call()
        except openai.APIStatusError as error:
            assert error.status_code == 501 and error.code == "not_supported", error
        else:
            raise AssertionError("501 was expected")


def adapters(adapter):
    def refused(body, code):
        try:
            post("/v1/load_lora_adapter", body)
        except urllib.error.HTTPError as error:
            assert json.load(error)["error"]["code"] == code
            return error.code
        raise AssertionError(f"{code} was expected")

    assert refused({"lora_name": "x", "lora_path": "/etc"}, "path_not_allowed") == 400
    assert refused({"lora_name": MODEL, "lora_path": adapter}, "invalid_field") == 400
    gone = adapter[:-1] + ("0" if adapter[-1] != "0" else "1")
    assert refused({"lora_name": gone, "lora_path": gone}, "model_not_found") == 404
    text = post("/v1/load_lora_adapter", {"lora_name": adapter, "lora_path": adapter})
    assert text == f"Success: LoRA adapter '{adapter}' added successfully.", text
    assert client.models.retrieve(adapter).dex["loaded"]
    expect_error(openai.BadRequestError, "adapter_in_use", lambda: client.models.delete(adapter))
    text = post("/v1/unload_lora_adapter", {"lora_name": adapter})
    assert text == f"Success: LoRA adapter '{adapter}' removed successfully.", text
    assert client.models.delete(adapter).deleted
    expect_error(openai.NotFoundError, "model_not_found", lambda: client.models.retrieve(adapter))
    expect_error(openai.BadRequestError, "invalid_field", lambda: client.models.delete(MODEL))


def jobs(job):
    listed = list(client.fine_tuning.jobs.list(limit=1))
    assert len(listed) == 3 and listed[-1].id == job, [item.id for item in listed]
    assert [item.id for item in client.fine_tuning.jobs.list(metadata={"who": "nobody"})] == []
    assert {item.status for item in listed[:2]} <= {"cancelled", "running"}
    expect_error(openai.BadRequestError, "job_state_conflict", lambda: client.fine_tuning.jobs.cancel(job))
    expect_error(openai.BadRequestError, "invalid_cursor", lambda: client.fine_tuning.jobs.list(after="ftjob-x"))


def main():
    training, validation = files()
    refused_jobs(training)
    job = create(training, validation)
    done = finished(job)
    adapter = done.fine_tuned_model
    assert adapter.startswith(f"ft:{MODEL}:default:client:") and done.trained_tokens > 0 and done.finished_at, done
    watch(job)
    checkpoints(done)
    results(done)
    jobs(job)
    models(adapter)
    chat(adapter)
    completions(adapter)
    refused_generations(adapter)
    adapters(adapter)
    print("the openai package", openai.__version__, "finds all that it needs")


main()
