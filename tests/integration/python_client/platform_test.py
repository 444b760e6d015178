"""dex_client on the real platform, as a program uses it: from a file to an answer, blocking and with asyncio."""

import asyncio
import io
import json
import re
import time

import pytest
from dex_fixtures import ROOT
from dex_client import Client, DexError, InvalidFile, aio
from tiny_platform import NAME, short_job, write_rows


def test_what_is_wrong_with_a_file_comes_back_by_line(client, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl")
    rows.write_text(rows.read_text() + '{"text": 5}\n{"texts": "a"}\n')
    with pytest.raises(InvalidFile) as caught:
        client.files.upload(rows)
    assert {finding.line for finding in caught.value.findings} >= {49, 50} and caught.value.file.state
    with pytest.raises(DexError) as refused:
        client.jobs.create(model=NAME, training_file=caught.value.file)
    assert refused.value.reason == "FILE_INVALID" and refused.value.category == "USER" and refused.value.request_id
    client.files.delete(caught.value.file.id)


def test_files_come_and_go_whole(client, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl")
    file = client.files.upload(rows, request_id="the-same-file")
    assert client.files.upload(rows, request_id="the-same-file").id == file.id
    assert client.files.get(file.id).bytes == rows.stat().st_size and file.id in {found.id for found in client.files.list()}
    assert client.files.download(file.id, tmp_path / "back.jsonl").read_bytes() == rows.read_bytes()
    with pytest.raises(FileExistsError):
        client.files.download(file.id, tmp_path / "back.jsonl")
    check = client.files.validate(file, model=NAME, max_seq_length=64)
    assert check.ready and check.statistics.rows_good == check.statistics.tokens.rows_trained == 48
    shown = client.files.preview(file.id, NAME, lines=[1, 48], max_seq_length=64)
    assert [row.line for row in shown.rows] == [1, 48] and "Row 47:" in shown.rows[1].rendered
    assert all(row.trainable_tokens > 0 and not row.dropped_reason for row in shown.rows)
    sweep = client.jobs.create_batch(sweep={"seed": [1, 2]}, training_file=file, validate_only=True, **short_job())
    assert [job.id for job in sweep] == ["", ""]
    client.files.delete(file.id)
    with pytest.raises(DexError) as gone:
        client.files.get(file.id)
    assert gone.value.reason == "RESOURCE_NOT_FOUND"


def test_a_job_is_estimated_created_once_followed_and_looked_at(client, platform, tmp_path):
    file = client.files.upload(write_rows(tmp_path / "rows.jsonl"))
    asked = {"training_file": file, **short_job(max_steps=40), "metadata": {"test": "followed"},
             "validation_split": 0.2, "request_id": "one-job"}
    estimate = client.jobs.estimate(**{name: value for name, value in asked.items() if name != "request_id"})
    assert estimate.total_steps == 40 and estimate.allowed_to_proceed
    assert client.jobs.create(**{**asked, "request_id": "looks-only"}, validate_only=True).id == ""
    job = client.jobs.create(**asked)
    assert client.jobs.create(**asked).id == job.id
    with pytest.raises(DexError) as conflict:
        client.jobs.create(**{**asked, "seed": 2})
    assert conflict.value.reason == "IDEMPOTENCY_CONFLICT"

    sequences = []
    for event in job.watch():
        sequences.append(event.sequence)
        if event.HasField("metrics") and event.metrics.step == 3:
            platform.kill("dex-gateway")  # what every open call goes through
    assert sequences == sorted(set(sequences)) and job.done
    job = client.jobs.get(job.id)
    assert job.state == "SUCCEEDED" and job.fine_tuned_model.startswith(f"ft:{NAME}:default:")
    rows = job.metrics()
    assert [row["step"] for row in rows if "train_loss" in row] == list(range(1, 41))
    assert len(rows.series("valid_loss")) >= 2 and rows.series("train_loss")[-1][1] < rows.series("train_loss")[0][1]
    assert sequences == [event.sequence for event in job.events]
    html = job._repr_html_()
    assert "succeeded" in html and html.count("<svg") >= 4 and "heads selected" in html and job.fine_tuned_model in html
    assert job.plot().svg.startswith("<svg")

    class Run(io.StringIO):
        def log(self, row, step):
            print(step, sorted(row), file=self)

    run = Run()
    assert job.mirror(run) == run.getvalue().count("\n") == len([e for e in job.events if e.type in ("metrics", "eval_complete")])
    assert job.id in {found.id for found in client.jobs.list(states=["SUCCEEDED"], metadata={"test": "followed"})}
    assert client.jobs.get(job.id).refresh(with_head_selection=True).proto.head_selection.selected_heads > 0


def test_a_job_is_paused_saved_resumed_and_cancelled(client, tmp_path):
    job = client.jobs.create(training_file=write_rows(tmp_path / "rows.jsonl"), **short_job(max_steps=4000))
    for event in job.watch(timeout=120):
        if event.HasField("metrics"):
            break
    saved = job.checkpoint()
    assert saved.id.startswith("ftckpt-") and saved.verified
    # The list is made of events, and a checkpoint's comes with a later beat than its answer.
    until = time.monotonic() + 60
    while saved.step not in {found.step for found in job.checkpoints() if found.verified}:
        assert time.monotonic() < until, job.checkpoints()
        time.sleep(0.1)
    assert job.pause().state in ("PAUSING", "PAUSED")
    for event in job.watch(job.last_sequence(), timeout=120):
        if event.type == "job_paused":
            break
    assert job.refresh().state == "PAUSED"
    assert job.resume().state in ("QUEUED", "RUNNING", "VALIDATING_FILES")
    job.cancel()
    assert job.wait(timeout=120, check=False).state == "CANCELLED"
    with pytest.raises(DexError) as ended:
        job.pause()
    assert ended.value.reason == "JOB_STATE_CONFLICT"
    client.jobs.delete(job.id)


def test_text_comes_whole_in_pieces_and_with_log_probabilities(client, trained):
    adapter = trained[0].fine_tuned_model
    settings = {"max_tokens": 12, "seed": 5, "temperature": 0.7}
    whole = client.complete(adapter, "Row 3: 21 apples", **settings)
    stream = client.complete(adapter, "Row 3: 21 apples", stream=True, **settings)
    assert "".join(stream) == whole.text == stream.text and stream.reply.usage == whole.usage
    assert whole.adapter.id == adapter and stream.reply.adapter == whole.adapter
    assert client.chat(NAME, [{"role": "user", "content": "Hi"}], max_tokens=4).usage.completion_tokens <= 4
    ids = [1, 20, 300, 4000]
    scored = client.generate(adapter, tokens=ids, max_tokens=0, echo=True, logprobs=1)
    assert [entry.token_id for entry in scored.logprobs] == ids and not scored.logprobs[0].HasField("logprob")
    half = client.generate(adapter, tokens=ids, max_tokens=0, echo=True, logprobs=1, dex_lambda_scale=0)
    assert [e.logprob for e in half.logprobs[1:]] != [e.logprob for e in scored.logprobs[1:]]
    with pytest.raises(DexError) as missing:
        client.complete("ft:nowhere", "a")
    assert missing.value.code in ("NOT_FOUND", "INVALID_ARGUMENT") and missing.value.category == "USER"


def test_ids_are_those_that_a_generation_reads(client, trained):
    adapter, words = trained[0].fine_tuned_model, "Row 3: 21 apples"
    ids = client.tokenize(adapter, words).ids
    read = client.complete(adapter, words, max_tokens=0, echo=True, logprobs=1)
    assert list(ids) == [entry.token_id for entry in read.logprobs] and words in client.detokenize(NAME, ids)
    chat = client.tokenize(NAME, messages="Hi")
    assert len(chat.ids) == client.chat(NAME, "Hi", max_tokens=1).usage.prompt_tokens
    assert "Hi" in client.detokenize(NAME, chat.ids) and client.tokenizer_info(NAME).chat_template
    with pytest.raises(DexError) as missing:
        client.tokenize("ft:nowhere", "a")
    assert missing.value.category == "USER"


def test_operators_see_workers_and_quotas_and_change_them(client, trained):
    [worker] = client.operations.workers()
    assert client.operations.update_worker(worker.id, draining=True).state == worker.STATE_DRAINING
    assert client.operations.update_worker(worker.id, draining=False).state == worker.STATE_UP
    before = client.operations.quota()
    changed = client.operations.set_quota(max_running=before.max_running + 1, etag=before.etag)
    assert (changed.max_running, changed.max_queued) == (before.max_running + 1, before.max_queued)
    with pytest.raises(DexError) as stale:
        client.operations.set_quota(max_running=before.max_running, etag=before.etag)
    assert stale.value.reason == "ETAG_MISMATCH"
    client.operations.set_quota(max_running=before.max_running)
    [waiting] = [pool for pool in client.operations.queue().pools if pool.name in worker.pools]  # a job was there
    assert (waiting.waiting, waiting.workers) == (0, 1)


def test_adapters_are_loaded_downloaded_exported_and_imported(client, trained, tmp_path):
    job, folder = trained
    adapter = client.adapters.load(job.fine_tuned_model)
    assert adapter.job == job.id and [found.id for found in client.adapters.list(job=job.id)] == [adapter.id]
    client.adapters.unload(adapter.id)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["job_id"] == job.id and sorted(file.name for file in folder.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "checksums.json"]
    with pytest.raises(DexError, match="not an empty folder"):
        client.adapters.download(adapter.id, folder)
    export = client.adapters.export(adapter.id, tmp_path / "folded", dtype="fp32")
    assert export.certificate.within_bound and (tmp_path / "folded/model.safetensors").is_file()
    assert client.adapters.get_export(export.id).sha256 == export.sha256
    imported = client.adapters.import_folder(folder, base_model=NAME, suffix="again")
    assert ":again:" in imported.id and imported.id != adapter.id
    client.adapters.delete(imported.id)


def test_an_adapter_is_measured_against_its_base(client, trained, tmp_path):
    file = client.files.upload(write_rows(tmp_path / "rows.jsonl"), purpose="evals")
    evaluation = client.evaluations.create([NAME, trained[0].fine_tuned_model], [{"perplexity": {"file": file.id, "stride": 32}}])
    rows = evaluation.wait(timeout=300).rows()
    loss = {row.subject: row.value for row in rows if row.metric == "loss" and not row.dims}
    assert loss["fixture"] < loss["base"] and "perplexity" in evaluation.report
    assert client.evaluations.compare(evaluation.id, evaluation.id).differences
    evaluation.download(tmp_path / "results")
    assert (tmp_path / "results/results.json").is_file() and evaluation.id in {e.id for e in client.evaluations.list()}
    client.evaluations.delete(evaluation.id)


def test_the_catalog_and_what_the_platform_is(client):
    assert [model.name for model in client.models.list()] == [NAME] and client.models.get(NAME).layers == 3
    assert "paper" in {preset.name for preset in client.presets.list()}
    assert client.presets.get("code", model=NAME).spec.dex.HasField("form") and client.capabilities().version
    assert client.health().checks
    assert "hyperparameters.batch_size" in {found.field for found in client.models.limits(NAME).ranges}
    report = client.jobs.preview_heads(NAME, texts=["One text of a few words.", "And another one."], preset="paper")
    assert report.selected_heads == 6


def test_the_same_with_asyncio(platform, tmp_path):
    async def story():
        async with aio.Client(platform.server) as client:
            job = await client.jobs.create(training_file=write_rows(tmp_path / "rows.jsonl"), suffix="aio", **short_job())
            events = [event.type async for event in job.watch()]
            await job.wait()
            assert "training_start" in events and job.state == "SUCCEEDED" and len(await job.metrics()) >= 12
            assert "succeeded" in job._repr_html_()
            stream = await client.complete(job.fine_tuned_model, "Row 3:", stream=True, max_tokens=8, seed=1)
            pieces = [piece async for piece in stream]
            whole, other = await asyncio.gather(client.complete(job.fine_tuned_model, "Row 3:", max_tokens=8, seed=1),
                                                client.chat(NAME, "Hi", max_tokens=2))
            assert "".join(pieces) == whole.text and other.model == NAME
            await client.adapters.download(job.fine_tuned_model, tmp_path / "adapter")
            assert (tmp_path / "adapter/checksums.json").is_file()
            assert job.id in [found.id async for found in client.jobs.list()]
            evaluation = await client.evaluations.create([job.fine_tuned_model], ["multi_needle"], validate_only=True)
            assert evaluation.id == ""

    asyncio.run(story())


def test_the_quick_start_of_the_readme_runs(platform, tmp_path, monkeypatch, capsys):
    readme = (ROOT / "client/python/README.md").read_text()
    code = re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1)
    assert len(code.strip().splitlines()) <= 10
    assert 'model="smollm2-135m-instruct"' in code and "preset=\"code\"" in code
    code = code.replace('model="smollm2-135m-instruct"', f'model="{NAME}", hyperparameters={{"max_steps": 2, "batch_size": 4}}')
    write_rows(tmp_path / "rows.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEX_DATA_DIR", str(platform.data))  # Client() finds the platform by itself
    with Client() as found:
        assert found._link.address.target == platform.server
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()
