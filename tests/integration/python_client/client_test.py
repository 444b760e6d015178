"""dex_client against a platform whose answers a test chooses: what is repeated, under which request_id, what errors say,
where a watch goes on; and that aio.Client does the same."""

import asyncio
import datetime
import inspect
import json
import os
import pathlib
import threading

import dex_client
import grpc
import pytest
from dex_client import Client, DexError, InvalidFile, JobFailed, aio
from dex_client._channel import Stubs
from dex_client._policy import Patience
from dex_client.v1 import adapters_pb2, admin_pb2, evaluation_pb2, files_pb2, finetuning_pb2, inference_pb2, models_pb2
from fake_platform import FakePlatform, abort

CODE = grpc.StatusCode
RUNNING, SUCCEEDED, FAILED = (getattr(finetuning_pb2, f"JOB_STATE_{name}") for name in ("RUNNING", "SUCCEEDED", "FAILED"))


class Awaited:
    """aio.Client called like Client: what is awaitable is awaited, what iterates is listed. So one test holds for both."""

    def __init__(self, target, loop):
        self._target, self._loop = target, loop

    def __getattr__(self, name):
        found = getattr(self._target, name)
        if not callable(found):
            return Awaited(found, self._loop) if type(found).__module__.startswith("dex_client.aio") else found

        def call(*args, **kwargs):
            return self._settled(found(*args, **kwargs))
        return call

    def _settled(self, value):
        if inspect.isawaitable(value):
            value = self._loop.run_until_complete(value)
        if hasattr(value, "__aiter__") and not hasattr(value, "reply"):
            return iter(self._loop.run_until_complete(self._listed(value)))
        return Awaited(value, self._loop) if type(value).__module__.startswith("dex_client.aio") else value

    def __iter__(self):
        return iter(self._loop.run_until_complete(self._listed(self._target)))

    @staticmethod
    async def _listed(items):
        return [item async for item in items]


@pytest.fixture(params=["blocking", "asyncio"])
def connect(request):
    """Makes a client of either kind."""
    opened = []
    loop = asyncio.new_event_loop()

    def open_client(platform, **options):
        address = platform if isinstance(platform, str) else platform.address
        if request.param == "blocking":
            opened.append(Client(address, **options))
        else:
            async def make():
                return aio.Client(address, **options)
            opened.append(Awaited(loop.run_until_complete(make()), loop))
        return opened[-1]

    yield open_client
    for client in opened:
        client.close()
    loop.close()


def job(state=RUNNING, id="ftjob-1", **fields):
    return finetuning_pb2.FineTuningJob(id=id, state=state, **fields)


def event(sequence, **data):
    return finetuning_pb2.WatchFineTuningJobResponse(event={"sequence": sequence, "type": next(iter(data), "note"), **data})


def snapshot(state, id="ftjob-1"):
    return finetuning_pb2.WatchFineTuningJobResponse(snapshot=job(state, id))


def failing(times, then, code=CODE.UNAVAILABLE, **said):
    """Fails so many times, then answers."""
    left = [times]

    def answer(request, context):
        if left[0]:
            left[0] -= 1
            abort(context, code, said.get("reason", "STORE_UNAVAILABLE"), **{k: v for k, v in said.items() if k != "reason"})
        return then(request, context)
    return answer


def test_an_error_says_what_the_platform_said(connect):
    def refuse(request, context):
        abort(context, CODE.INVALID_ARGUMENT, "VALUE_OUT_OF_RANGE", "seed must be ≥ 0, got -1", category="USER", retryable="false",
              request_id="req-7", param="spec.seed", violations=[("spec.seed", "must be ≥ 0")], limit="0")

    with FakePlatform(CreateFineTuningJob=refuse) as platform, pytest.raises(DexError) as caught:
        connect(platform).jobs.create(model="m", training_file="file-" + "0" * 26, seed=-1)
    error = caught.value
    assert str(error) == "seed must be ≥ 0, got -1"
    assert (error.reason, error.category, error.retryable, error.request_id, error.param, error.code) == (
        "VALUE_OUT_OF_RANGE", "USER", False, "req-7", "spec.seed", "INVALID_ARGUMENT")
    assert error.violations == [("spec.seed", "must be ≥ 0")] and error.metadata == {"limit": "0"}
    assert len(platform.requests("CreateFineTuningJob")) == 1


def test_a_change_is_repeated_under_one_request_id(connect):
    with FakePlatform(CreateFineTuningJob=failing(2, lambda *_: job(), retry_seconds=0.01)) as platform:
        client = connect(platform, api_key="dex_secret")
        assert client.jobs.create(model="m", training_file="file-" + "0" * 26, preset="code", suffix="x").id == "ftjob-1"
        client.jobs.create(model="m", training_file="file-" + "0" * 26)
    sent = platform.requests("CreateFineTuningJob")
    assert len(sent) == 4 and sent[0] == sent[1] == sent[2]
    assert sent[0].request_id and sent[3].request_id not in ("", sent[0].request_id)
    assert sent[0].spec.dex.preset == "code" and not sent[3].spec.WhichOneof("method")
    assert {metadata["authorization"] for _, _, metadata in platform.calls} == {"Bearer dex_secret"}


def test_every_change_carries_a_request_id(connect, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n')
    uploaded = []

    def upload(parts, _):
        uploaded.extend(parts)
        return files_pb2.File(id="file-1", state=files_pb2.FILE_STATE_READY)

    with FakePlatform(
            CancelFineTuningJob=lambda *_: job(), PauseFineTuningJob=lambda *_: job(), ResumeFineTuningJob=lambda *_: job(),
            UpdateFineTuningJob=lambda *_: job(), RedriveFineTuningJob=lambda *_: job(), GetFineTuningJob=lambda *_: job(),
            DeleteFineTuningJob=lambda *_: finetuning_pb2.DeleteFineTuningJobResponse(),
            CreateCheckpoint=lambda *_: finetuning_pb2.Checkpoint(id="ftckpt-1"), UploadFile=upload,
            DeleteFile=lambda *_: files_pb2.DeleteFileResponse(), LoadAdapter=lambda *_: adapters_pb2.LoadAdapterResponse(),
            UnloadAdapter=lambda *_: adapters_pb2.Adapter(), SetAdapterAlias=lambda *_: adapters_pb2.AdapterAlias(),
            PinAdapter=lambda *_: adapters_pb2.Adapter(),
            DeleteAdapterAlias=lambda *_: adapters_pb2.AdapterAlias(), DeleteAdapter=lambda *_: adapters_pb2.DeleteAdapterResponse(),
            CreateEvaluation=lambda *_: evaluation_pb2.Evaluation(id="eval-1"),
            CancelEvaluation=lambda *_: evaluation_pb2.Evaluation(id="eval-1"),
            SetQuota=lambda *_: admin_pb2.Quota(), UpdateWorker=lambda *_: admin_pb2.Worker(),
            DeleteEvaluation=lambda *_: evaluation_pb2.DeleteEvaluationResponse()) as platform:
        client = connect(platform)
        handle = client.jobs.get("ftjob-1")
        assert handle.checkpoint().id == "ftckpt-1"
        for change in (handle.cancel, handle.pause, handle.resume, lambda: client.jobs.cancel("j"), lambda: client.jobs.pause("j"),
                       lambda: client.jobs.resume("j"), lambda: client.jobs.update("j", priority=3, metadata={"a": "b"}),
                       lambda: client.jobs.redrive("j"), lambda: client.jobs.delete("j"), lambda: client.files.upload(rows),
                       lambda: client.files.delete("f"), lambda: client.adapters.load("a"), lambda: client.adapters.unload("a"),
                       lambda: client.adapters.set_alias("n", "a"), lambda: client.adapters.pin("a"), lambda: client.adapters.delete_alias("n"),
                       lambda: client.adapters.delete("a"), lambda: client.evaluations.create(["m"], ["multi_needle"]).cancel(),
                       lambda: client.evaluations.delete("e"), lambda: client.operations.set_quota("t", max_running=0),
                       lambda: client.operations.update_worker("w", draining=False)):
            change()
    ids = [request.request_id for name, request, _ in platform.calls if name not in ("GetFineTuningJob", "UploadFile")]
    assert len(ids) == 22 and all(ids) and len(set(ids)) == 22
    assert uploaded[0].header.request_id and uploaded[0].header.size_bytes == len(uploaded[1].chunk) == 14


def test_an_upload_that_breaks_is_sent_again_as_the_same_one(connect, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"x" * 700_000)
    tries = []

    def upload(parts, context):
        tries.append([next(parts)])
        if len(tries) == 1:
            tries[0].append(next(parts))
            abort(context, CODE.UNAVAILABLE, "SERVER_DRAINING")
        tries[-1].extend(parts)
        return files_pb2.File(id="file-1", state=files_pb2.FILE_STATE_READY)

    sent = []
    with FakePlatform(UploadFile=upload) as platform:
        assert connect(platform).files.upload(rows, progress=lambda *bytes: sent.append(bytes)).id == "file-1"
    assert tries[0][0] == tries[1][0] and tries[1][0].header.request_id
    assert b"".join(part.chunk for part in tries[1][1:]) == rows.read_bytes()
    assert sent[-1] == (700_000, 700_000)


def test_a_file_with_faults_raises_all_its_findings(connect, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("[]\n")
    findings = [files_pb2.Finding(line=line, code="not_an_object", message="is a list") for line in range(1, 1501)]

    def upload(parts, _):
        list(parts)
        return files_pb2.File(id="file-1", filename="rows.jsonl", state=files_pb2.FILE_STATE_INVALID,
                              finding_counts={"not_an_object": 1500}, findings=findings[:20])

    def page(request, _):
        return files_pb2.ListFindingsResponse(findings=findings[request.offset:request.offset + 1000], total=1500)

    with FakePlatform(UploadFile=upload, ListFindings=page) as platform:
        client = connect(platform)
        with pytest.raises(InvalidFile, match="rows.jsonl .file-1. has faults: 1500 findings; the first is in line 1: is a list") as bad:
            client.files.upload(rows)
        assert [finding.line for finding in bad.value.findings] == list(range(1, 1501))
        assert bad.value.reason == "FILE_INVALID" and bad.value.file.id == "file-1"
        assert client.files.upload(rows, check=False).id == "file-1"
        with pytest.raises(DexError, match="there is no regular file"):
            client.files.upload(tmp_path / "missing.jsonl")


def test_what_is_final_is_not_repeated_and_patience_ends(connect):
    def away(_, context):
        abort(context, CODE.UNAVAILABLE, "STORE_UNAVAILABLE", retry_seconds=0.05, retryable="true", category="SYSTEM")

    with FakePlatform(GetFineTuningJob=away, GetModel=lambda _, context: abort(context, CODE.NOT_FOUND, "MODEL_NOT_FOUND"),
                      ListModels=failing(1, lambda *_: models_pb2.ListModelsResponse(), CODE.RESOURCE_EXHAUSTED,
                                         reason="RATE_LIMITED", retry_seconds=0.01)) as platform:
        client = connect(platform, timeout=1.5)
        with pytest.raises(DexError) as caught:
            client.jobs.get("ftjob-1")
        assert caught.value.reason == "STORE_UNAVAILABLE" and caught.value.retryable and caught.value.retry_after_seconds == 0.05
        assert 3 <= len(platform.requests("GetFineTuningJob")) <= 31  # 50 ms apart
        with pytest.raises(DexError, match="no"):
            client.models.get("m")
        assert len(platform.requests("GetModel")) == 1
        client.models.list()
        assert len(platform.requests("ListModels")) == 2


def test_nobody_there_is_named_with_the_way_out(connect):
    with pytest.raises(DexError, match="nobody answers at 127.0.0.1:1, named by server=.*start dexd, or name the platform"):
        connect("127.0.0.1:1", timeout=0.3).models.list()


def test_patience_takes_the_platforms_word_and_grows_without_it():
    now = [0.0]
    patience = Patience(10, 5, clock=lambda: now[0], chance=lambda: 0.0)
    away = DexError("away", code="UNAVAILABLE")
    assert [patience.delay_after(away) for _ in range(6)] == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert patience.delay_after(DexError("away", code="UNAVAILABLE", retry_after_seconds=3.5)) == 3.5
    assert patience.delay_after(DexError("gone", code="NOT_FOUND")) is None
    now[0] = 4.0
    assert patience.left() == 6 and patience.delay_after(away) is None


def test_a_watch_goes_on_from_the_last_event_over_restarts(connect):
    """One that breaks off, one that ends early, a platform that is away; each event once, in order."""
    connections = []

    def watch(request, context):
        connections.append(request.after_sequence)
        number = len(connections)
        if number == 1:
            yield snapshot(RUNNING)
            yield event(3)
            yield event(5)
            abort(context, CODE.UNAVAILABLE, "SERVER_DRAINING")
        elif number == 2:
            yield snapshot(RUNNING)
            yield event(5)  # told twice
            yield event(8)
        elif number == 3:
            abort(context, CODE.RESOURCE_EXHAUSTED, "RATE_LIMITED")
        else:
            yield event(9)
            yield snapshot(SUCCEEDED)

    with FakePlatform(WatchFineTuningJob=watch, GetFineTuningJob=lambda *_: job()) as platform:
        handle = connect(platform).jobs.get("ftjob-1")
        assert [found.sequence for found in handle.watch(2)] == [3, 5, 8, 9]
        assert connections == [2, 5, 8, 8] and handle.state == "SUCCEEDED" and handle.done


def test_a_watch_outlives_a_platform_that_is_gone_for_a_while(connect):
    restarted = threading.Event()

    def watch(request, context):
        if request.after_sequence == 0:
            yield event(1)
            threading.Thread(target=restart).start()
            restarted.wait(20)
        else:
            yield event(2)
            yield snapshot(SUCCEEDED)

    def restart():
        platform.stop()
        platform.start()
        restarted.set()

    with FakePlatform(WatchFineTuningJob=watch, GetFineTuningJob=lambda *_: job()) as platform:
        assert [found.sequence for found in connect(platform).jobs.get("ftjob-1").watch()] == [1, 2]


def test_a_watch_of_nothing_ends_with_its_error(connect):
    def watch(_, context):
        abort(context, CODE.NOT_FOUND, "RESOURCE_NOT_FOUND")

    with FakePlatform(WatchFineTuningJob=watch, GetFineTuningJob=lambda *_: job()) as platform:
        with pytest.raises(DexError) as caught:
            list(connect(platform).jobs.get("ftjob-1").watch())
    assert caught.value.reason == "RESOURCE_NOT_FOUND" and len(platform.requests("WatchFineTuningJob")) == 1


def test_wait_says_how_it_ended_and_when_its_time_is_over(connect):
    error = {"code": "out_of_memory", "message": "did not fit", "category": "CAPACITY"}

    def watch(request, context):
        yield event(1, metrics={"step": 4, "train_loss": 2.5})
        if request.id == "ftjob-slow":
            for _ in range(200):  # till the client leaves
                if not context.is_active():
                    return
                threading.Event().wait(0.05)
        yield snapshot(FAILED, request.id)

    with FakePlatform(WatchFineTuningJob=watch, GetFineTuningJob=lambda request, _: job(
            FAILED if request.id == "ftjob-bad" else RUNNING, request.id,
            error=error if request.id == "ftjob-bad" else None)) as platform:
        client = connect(platform)
        bad = client.jobs.get("ftjob-bad")
        with pytest.raises(JobFailed, match="ftjob-bad ended FAILED: did not fit .out_of_memory.") as caught:
            bad.wait()
        assert caught.value.reason == "out_of_memory" and caught.value.category == "CAPACITY"
        assert bad.wait(check=False).state == "FAILED"
        with pytest.raises(DexError) as late:
            client.jobs.get("ftjob-slow").wait(timeout=0.3)
        assert late.value.reason == "DEADLINE"


def pieces(*texts):
    yield inference_pb2.GenerateStreamResponse(start={"id": "gen-1", "model": "ft:a", "seed": 7, "adapter": {"id": "ft:a"}})
    for text in texts:
        yield inference_pb2.GenerateStreamResponse(delta={"text": text, "token_ids": [len(text)]})
    yield inference_pb2.GenerateStreamResponse(finish={"finish_reason": "FINISH_REASON_STOP", "usage": {"completion_tokens": 2}})


def test_a_stream_is_pieces_and_then_the_whole_reply(connect):
    begun = []

    def stream(request, context):
        begun.append(request)
        if len(begun) == 1:
            abort(context, CODE.UNAVAILABLE, "ADAPTER_LOADING", retry_seconds=0.01)
        yield from pieces("Hel", "", "lo")

    with FakePlatform(GenerateStream=stream) as platform:
        answer = connect(platform).chat("ft:a", "Hi", stream=True, max_tokens=5, stop="\n", temperature=0, dex_lambda_scale=0.5)
        assert list(answer) == ["Hel", "lo"]
        assert answer.text == "Hello" and list(answer.reply.token_ids) == [3, 0, 2]
        assert answer.reply.adapter.id == "ft:a" and answer.reply.usage.completion_tokens == 2 and answer.reply.seed == 7
    sent = begun[-1]
    assert sent.chat.messages[0].role == "user" and sent.chat.messages[0].content == "Hi" and list(sent.stop) == ["\n"]
    assert sent.HasField("temperature") and sent.temperature == 0 and sent.dex_lambda_scale == 0.5


def test_a_stream_that_breaks_is_not_begun_again(connect):
    def stream(_, context):
        yield from list(pieces("Hel"))[:2]
        abort(context, CODE.UNAVAILABLE, "ENGINE_LOST")

    with FakePlatform(GenerateStream=stream) as platform:
        with pytest.raises(DexError) as caught:
            list(connect(platform).complete("m", "Hi", stream=True))
    assert caught.value.reason == "ENGINE_LOST" and len(platform.requests("GenerateStream")) == 1


def test_closing_a_stream_ends_the_generation():
    ended = threading.Event()

    def stream(_, context):
        context.add_callback(ended.set)
        yield from list(pieces("Hel"))[:2]
        ended.wait(20)

    with FakePlatform(GenerateStream=stream) as platform, Client(platform.address) as client:
        with client.complete("m", "Hi", stream=True) as answer:
            assert next(iter(answer)) == "Hel"
        assert ended.wait(10)


def test_lists_go_on_to_the_last_page(connect):
    def page(request, _):
        start = int(request.page_token or 0)
        return finetuning_pb2.ListFineTuningJobsResponse(
            jobs=[job(id=f"ftjob-{number}") for number in range(start, min(start + 2, 5))],
            next_page_token=str(start + 2) if start + 2 < 5 else "")

    with FakePlatform(ListFineTuningJobs=page) as platform:
        found = list(connect(platform).jobs.list(states=["running", "JOB_STATE_QUEUED"], model="m", metadata={"a": "b"}))
        assert [handle.id for handle in found] == [f"ftjob-{number}" for number in range(5)]
    assert list(platform.requests("ListFineTuningJobs")[0].filter.states) == [RUNNING, finetuning_pb2.JOB_STATE_QUEUED]


@pytest.mark.parametrize(("arguments", "words"), [
    ({"hyperparameter": {}}, "hyperparameter is no field of FineTuningJobSpec; did you mean hyperparameters"),
    ({"hyperparameters": {"n_epoch": 1}}, "hyperparameters.n_epoch is no field of Hyperparameters; did you mean n_epochs"),
    ({"dex": {"form": "spiral"}}, "dex.form must be one of paper, dense, head_mean, prefix_mean, uniform_map, got 'spiral'"),
    ({"hyperparameters": {"max_steps": "many"}}, "hyperparameters.max_steps can't be 'many'"),
    ({"method": "lora", "full": {}}, "method is lora, but full is given"),
    ({"full": {}, "diff": {}}, "diff and full are two methods"),
    ({"method": "lora", "preset": "code"}, "preset is of dex and kvo_only; the method is lora"),
    ({"training_file": "nowhere.jsonl"}, "training_file is neither the id of a file nor the path of one: 'nowhere.jsonl'")])
def test_a_wrong_argument_is_named_before_anybody_is_asked(connect, arguments, words):
    with FakePlatform(CreateFineTuningJob=lambda *_: job()) as platform:
        with pytest.raises(DexError, match=words) as caught:
            connect(platform).jobs.create(**{"model": "m", "training_file": "file-" + "0" * 26, **arguments})
        assert caught.value.category == "USER" and not platform.calls


def test_the_server_is_found_as_dexctl_finds_it(tmp_path):
    def find(environment, server=None, key=None, lives=True):
        return dex_client.find_server(server, key, environment, lambda pid: lives)

    data = tmp_path / ".local/share/dex"
    data.mkdir(parents=True)
    home = {"HOME": str(tmp_path)}
    assert find(home).target == "localhost:50051"
    (data / "endpoints.json").write_text(json.dumps({"grpc": "127.0.0.1:7", "pid": 5}))
    (data / "admin.key").write_text("dex_admin\n")
    assert (find(home).target, find(home).origin, find(home).api_key) == ("127.0.0.1:7", str(data / "endpoints.json"), "dex_admin")
    assert find(home, key="mine").api_key == "mine" and find({**home, "DEX_API_KEY": "set"}).api_key == "set"
    assert find({"DEX_DATA_DIR": str(data)}).target == "127.0.0.1:7"
    # A key of this machine's platform is not sent to another one.
    assert find({**home, "DEX_SERVER": "far:1"}).target == "far:1" and find({**home, "DEX_SERVER": "far:1"}).api_key is None
    assert find({**home, "DEX_SERVER": "far:1"}, server="near:2").target == "near:2"
    with pytest.raises(DexError, match="left over from a dexd .process 5. that is gone; start dexd"):
        find(home, lives=False)
    (data / "endpoints.json").write_text("{")
    with pytest.raises(DexError, match='names no "grpc" address; start dexd'):
        find(home)
    assert "dex_admin" not in repr(find(home, server="x:1", key="dex_admin"))
    assert dex_client._address.process_lives(os.getpid())


def test_checkpoints_go_on_after_the_last_one_seen(connect):
    def page(request, _):
        steps = [step for step in (50, 40, 30) if not request.after or step < int(request.after.rsplit("-")[-1])][:2]
        return finetuning_pb2.ListFineTuningCheckpointsResponse(
            checkpoints=[{"id": f"ftckpt-1-{step}", "step": step} for step in steps], has_more=30 not in steps)

    with FakePlatform(ListFineTuningCheckpoints=page, GetFineTuningJob=lambda *_: job()) as platform:
        client = connect(platform)
        assert [found.step for found in client.jobs.checkpoints("ftjob-1")] == [50, 40, 30]
        assert [found.step for found in client.jobs.get("ftjob-1").checkpoints()] == [50, 40, 30]
    asked = platform.requests("ListFineTuningCheckpoints")
    assert [(request.job, request.after) for request in asked] == [("ftjob-1", ""), ("ftjob-1", "ftckpt-1-40")] * 2


def test_what_operators_ask_and_say(connect):
    def workers(request, _):
        first = not request.page_token
        return admin_pb2.ListWorkersResponse(workers=[{"id": "w1" if first else "w2"}], next_page_token="w1" if first else "")

    with FakePlatform(GetQuota=lambda request, _: admin_pb2.Quota(tenant=request.tenant or "default", etag="3"),
                      SetQuota=lambda request, _: admin_pb2.Quota(tenant=request.tenant, max_running=request.max_running),
                      GetQueue=lambda request, _: admin_pb2.Queue(pools=[{"name": request.pool or "cpu"}]), ListWorkers=workers,
                      UpdateWorker=lambda request, _: admin_pb2.Worker(id=request.id)) as platform:
        operations = connect(platform).operations
        assert operations.quota().tenant == "default" and operations.quota("team-a").etag == "3"
        assert operations.set_quota("team-a", max_running=0, etag="3").tenant == "team-a"
        assert [worker.id for worker in operations.workers()] == ["w1", "w2"]
        assert [operations.update_worker("w1", draining=draining).id for draining in (True, False)] == ["w1", "w1"]
        assert operations.queue().pools[0].name == "cpu" and operations.queue(pool="gpu1", count=5).pools[0].name == "gpu1"
        with pytest.raises(DexError, match="max_runing is no field of SetQuotaRequest; did you mean max_running"):
            operations.set_quota("team-a", max_runing=2)
    [changed] = platform.requests("SetQuota")  # a limit of 0 is said, one that is left out is not
    assert changed.HasField("max_running") and changed.etag == "3" and not changed.HasField("weight")
    assert [request.draining for request in platform.requests("UpdateWorker")] == [True, False]
    assert all(request.HasField("draining") for request in platform.requests("UpdateWorker"))
    assert [(request.pool, request.count) for request in platform.requests("GetQueue")] == [("", 0), ("gpu1", 5)]


def test_keys_are_made_listed_and_revoked_and_use_is_told(connect):
    def listed(request, _):
        ids, more = (["key-2"], "") if request.page_token else (["key-1"], "on")
        return admin_pb2.ListApiKeysResponse(keys=[{"id": id} for id in ids], next_page_token=more)

    with FakePlatform(CreateApiKey=lambda request, _: admin_pb2.ApiKey(id="key-1", name=request.name, secret="dex_x"),
                      ListApiKeys=listed, RevokeApiKey=lambda request, _: admin_pb2.ApiKey(id=request.id),
                      WhoAmI=lambda *_: admin_pb2.Caller(tenant="team-a"),
                      GetUsage=lambda request, _: admin_pb2.GetUsageResponse(tenant=request.tenant)) as platform:
        operations = connect(platform).operations
        end = datetime.datetime(2030, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
        assert operations.create_key("ci", ["infer", "jobs:read"], expire_time=end).secret == "dex_x"
        with pytest.raises(TypeError, match="scopes must be a list"):
            operations.create_key("ci", "infer")
        with pytest.raises(ValueError, match="time zone"):
            operations.create_key("ci", ["infer"], expire_time=datetime.datetime(2030, 1, 1))
        assert [key.id for key in operations.keys()] == ["key-1", "key-2"]
        assert operations.revoke_key("key-1").id == "key-1" and operations.who_am_i().tenant == "team-a"
        assert operations.usage("team-b", days=7).tenant == "team-b"
    [made] = platform.requests("CreateApiKey")
    assert list(made.scopes) == ["infer", "jobs:read"] and made.request_id
    assert made.expire_time.seconds == int(datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc).timestamp())
    assert platform.requests("RevokeApiKey")[0].request_id and platform.requests("GetUsage")[0].days == 7


def test_texts_and_chats_become_ids_and_text_again(connect):
    info = inference_pb2.TokenizerInfo(eos_token="<end>", tokenizer_sha256="ab")
    with FakePlatform(Tokenize=lambda *_: inference_pb2.TokenizeResponse(ids=[1, 2], max_model_len=64),
                      Detokenize=lambda request, _: inference_pb2.DetokenizeResponse(text=" ".join(map(str, request.ids))),
                      GetTokenizerInfo=lambda *_: info) as platform:
        client = connect(platform)
        assert list(client.tokenize("m", "Hi", add_special_tokens=False).ids) == [1, 2]
        assert client.tokenize("m", messages="Hi", adapter="ft:a").max_model_len == 64
        assert client.detokenize("m", [7, 8]) == "7 8" and client.detokenize("ft:a", []) == ""
        assert client.tokenizer_info("m") == info
        for arguments, words in ({}, "got none"), ({"text": "a", "messages": "b"}, "got text and messages"):
            with pytest.raises(DexError, match=f"input must be one of text and messages, {words}"):
                client.tokenize("m", **arguments)
    text, chat = platform.requests("Tokenize")
    assert text.text == "Hi" and text.HasField("add_special_tokens") and not text.HasField("adapter")
    assert [(m.role, m.content) for m in chat.chat.messages] == [("user", "Hi")] and chat.adapter == "ft:a"
    assert not chat.HasField("add_special_tokens")


def test_a_stored_file_is_checked_again_with_all_that_was_found(connect):
    def check(request, _):
        yield files_pb2.ValidateFileResponse(progress={"bytes": 10, "total_bytes": 20, "rows": 1})
        for line in (3, 7):
            yield files_pb2.ValidateFileResponse(finding={"line": line, "code": "no_trainable_tokens"})
        yield files_pb2.ValidateFileResponse(statistics={"rows_good": 2, "tokens": {"trainable_tokens": 40}})
        state = files_pb2.FILE_STATE_READY if request.model else files_pb2.FILE_STATE_INVALID
        yield files_pb2.ValidateFileResponse(verdict={"state": state, "message": "2 rows are left out"})

    seen = []
    with FakePlatform(ValidateFile=check) as platform:
        files = connect(platform).files
        found = files.validate("file-1", model="m", max_seq_length=64, truncation="chunk", progress=lambda *bytes: seen.append(bytes))
        assert found.ready and [finding.line for finding in found.findings] == [3, 7]
        assert found.statistics.rows_good == 2 and found.statistics.tokens.trainable_tokens == 40
        structure = files.validate(files_pb2.File(id="file-2"))
        assert not structure.ready and structure.verdict.message == "2 rows are left out"
        with pytest.raises(DexError, match="max_seq_len is no field of RowEncoding; did you mean max_seq_length"):
            files.validate("file-1", model="m", max_seq_len=64)
    asked, bare = platform.requests("ValidateFile")
    assert (asked.file, asked.model, asked.encoding.max_seq_length) == ("file-1", "m", 64) and seen == [(10, 20)]
    assert asked.encoding.truncation == finetuning_pb2.Hyperparameters.TRUNCATION_CHUNK
    assert not asked.encoding.HasField("preset") and asked.max_findings == 0
    assert bare.file == "file-2" and not bare.HasField("model") and not bare.HasField("encoding")


def test_rows_are_shown_as_training_sees_them(connect):
    reply = files_pb2.PreviewFileResponse(rows=[{"line": 4, "trainable_tokens": 2, "tokens": [{"id": 7, "text": "a", "weight": 1}]}],
                                          next_offset=9)
    with FakePlatform(PreviewFile=lambda *_: reply) as platform:
        files = connect(platform).files
        assert files.preview("file-1", "m", lines=[4, 8]) == reply
        assert files.preview("file-1", "m", offset=8, limit=1, train_on_inputs=False).next_offset == 9
    lines, page = platform.requests("PreviewFile")
    assert (list(lines.lines), lines.offset, lines.HasField("encoding")) == ([4, 8], 0, False)
    assert (page.offset, page.limit, page.encoding.HasField("train_on_inputs"), page.encoding.train_on_inputs) == (8, 1, True, False)


def test_names_are_moved_listed_and_deleted(connect):
    def listed(request, _):
        names, more = (["old"], "") if request.page_token else (["live"], "on")
        return adapters_pb2.ListAdapterAliasesResponse(aliases=[{"alias": name} for name in names], next_page_token=more)

    def move(request, _):
        return adapters_pb2.AdapterAlias(alias=request.alias, adapter=request.adapter, etag="2")

    with FakePlatform(SetAdapterAlias=move, ListAdapterAliases=listed,
                      DeleteAdapterAlias=lambda request, _: adapters_pb2.AdapterAlias(alias=request.alias)) as platform:
        adapters = connect(platform).adapters
        assert adapters.set_alias("live", "ft:a", etag="1", create_only=False, wait_seconds=5).adapter == "ft:a"
        assert [found.alias for found in adapters.aliases()] == ["live", "old"] and adapters.delete_alias("old").alias == "old"
    [moved] = platform.requests("SetAdapterAlias")
    assert (moved.etag, moved.wait_seconds, moved.override_gates) == ("1", 5, False) and moved.request_id


def test_a_sweep_is_one_call_and_many_jobs(connect):
    def create(request, _):
        return finetuning_pb2.BatchCreateFineTuningJobsResponse(jobs=[job(id=f"ftjob-{n}") for n in (1, 2)], sweep_id="sweep-1")

    file = "file-" + "0" * 26
    with FakePlatform(BatchCreateFineTuningJobs=create, GetModelLimits=lambda request, _: models_pb2.ModelLimits(
            model=request.model, method=request.method)) as platform:
        client = connect(platform)
        made = client.jobs.create_batch(sweep={"hyperparameters.learning_rate": [1e-5, "auto"], "dex.preset": ["code"]},
                                        model="m", training_file=file, suffix="x", request_id="once")
        assert [handle.id for handle in made] == ["ftjob-1", "ftjob-2"]
        client.jobs.create_batch(specs=[{"model": "m", "training_file": file, "preset": preset} for preset in ("code", "small")])
        with pytest.raises(DexError, match="dex.preset must have a list of values, got 'code'"):
            client.jobs.create_batch(sweep={"dex.preset": "code"}, model="m", training_file=file)
        assert client.models.limits("m", method="lora").method == "lora"
    grid, listed = platform.requests("BatchCreateFineTuningJobs")
    assert [axis.path for axis in grid.sweep] == ["hyperparameters.learning_rate", "dex.preset"] and grid.request_id == "once"
    assert grid.sweep[0].values[0].number_value == 1e-5 and grid.sweep[0].values[1].string_value == "auto"
    assert grid.spec.suffix == "x" and grid.spec.training_file == file and not grid.specs
    assert [spec.dex.preset for spec in listed.specs] == ["code", "small"] and not listed.HasField("spec") and listed.request_id


def surface(kind):
    """Public methods and their parameters."""
    return {name: list(inspect.signature(method).parameters.values()) for name, method in inspect.getmembers(kind, callable)
            if not name.startswith("_")}


def test_aio_has_every_method_with_the_same_parameters():
    with Client("x:1") as blocking:
        async def compare():
            client = aio.Client("x:1")
            for one, other in [(Client, aio.Client), (dex_client.Job, aio.Job), (dex_client.Evaluation, aio.Evaluation),
                               (dex_client.Stream, aio.Stream)] + [
                                   (type(getattr(blocking, name)), type(getattr(client, name)))
                                   for name in ("files", "jobs", "adapters", "models", "presets", "evaluations", "operations")]:
                mine, twin = surface(one), surface(other)
                assert [(name, [(p.name, p.default, p.kind) for p in parameters]) for name, parameters in mine.items()] == [
                    (name, [(p.name, p.default, p.kind) for p in parameters]) for name, parameters in twin.items()], one
            await client.close()
        asyncio.run(compare())


def test_there_is_a_method_for_every_rpc():
    """What the stubs can, something in the package calls."""
    source = "".join(file.read_text() for file in pathlib.Path(dex_client.__file__).parent.glob("_*.py"))
    with grpc.insecure_channel("x:1") as channel:
        rpcs = {name for stub in vars(Stubs(channel)).values() for name in vars(stub)}
    assert len(rpcs) > 40
    assert sorted(name for name in rpcs if f".{name}," not in source) == []
