#!/usr/bin/env python3
"""tests/perf/compare does what it says: order, ratios, bars, refusals. All programs are stand-ins, which say what they are told to.

usage: harness_test.py
"""

import contextlib
import dataclasses
import io
import json
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path
from types import SimpleNamespace

import comparisons
from comparisons import accuracy, adapters, doors, process, serving, start, training, whole, work
from comparisons.common import ROOT, Bar, Context, Refused, Rival, Side, peer, verdicts
from comparisons.rounds import Comparison, Limit, Runner, median_of, wall_seconds

PERF = Path(__file__).resolve().parent
MACHINE = {"cpu": "a cpu", "cores": 2, "threads": 2, "load": 0.1, "commit": "abc"}
SMOLLM2 = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "num_hidden_layers": 30,
           "vocab_size": 49152}
# Writes its name down and prints the next of the objects in its file.
STAND_IN = """
import json, sys
folder, name = sys.argv[1:3]
open(folder + "/order", "a").write(name + " ")
path = folder + "/" + name + ".json"
told = json.load(open(path))
json.dump(told[1:] or told, open(path, "w"))
print(json.dumps(told[0]))
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return path


class RoundsTest(Folder):
    def side(self, name, *told, **more):
        """A side that prints these objects, one a run; a number stands for {"tok_s": {"median": it}}."""
        (self.folder / f"{name}.json").write_text(json.dumps(
            [{"tok_s": {"median": one}, "peak_rss_mib": 100} if isinstance(one, (int, float)) else one for one in told]))
        return Side(name, (sys.executable, "-IS", "-c", STAND_IN, self.folder, name), **more)

    def lines(self, comparison, pairs=1, **more):
        return comparison.lines("a-name", Runner(MACHINE, pairs=pairs, log=io.StringIO(), **more))

    def order(self):
        return (self.folder / "order").read_text().split()

    def test_sides_take_turns_and_the_ratio_is_the_median_of_the_pairs(self):
        ours = self.side("ours", {"tok_s": {"median": 12}, "peak_rss_mib": 40}, {"tok_s": {"median": 30}, "peak_rss_mib": 50}, 20)
        a, b = self.side("a", 10, 10, 10), self.side("b", 4, 5, 16)
        comparison = Comparison("what", ours, (Rival("A", (a,)), Rival("B", (b,))), median_of("tok_s"))
        first, second = self.lines(comparison, pairs=3)
        self.assertEqual(self.order(), "ours a b b a ours ours a b".split())
        self.assertEqual([first[field] for field in ("ours", "peer", "peer_name", "ratio", "ratio_min", "ratio_max", "pairs")],
                         [20, 10, "A", 2, 1.2, 3, 3])
        self.assertEqual([second[field] for field in ("peer_name", "ratio", "ratio_min", "ratio_max")], ["B", 3, 1.25, 6])
        self.assertEqual([first[field] for field in ("rss_ours", "rss_peer", "rss_ratio")], [100, 100, 1])
        self.assertEqual([first[field] for field in ("name", "what", "unit", "cpu", "load", "threads", "commit", "command")],
                         ["a-name", "what", "tok/s", "a cpu", 0.1, 2, "abc", "tests/perf/compare a-name --pairs 3"])

    def test_of_several_the_best_of_each_round_counts(self):
        ours = self.side("ours", 6, 6, 6)
        sides = (self.side("slow", 1, 1, 12), self.side("fast", 2, 3, 4))
        (line,) = self.lines(Comparison("", ours, (Rival("the best", sides),), median_of("tok_s")), pairs=3)
        self.assertEqual([line[field] for field in ("peer", "peer_name", "peers", "ratio", "ratio_min", "ratio_max")],
                         [3, "the best: fast", {"slow": 1, "fast": 3}, 2, 0.5, 3])

    def test_seconds_are_better_when_there_are_fewer(self):
        sides = (self.side("slow", 5), self.side("fast", 4))
        (line,) = self.lines(Comparison("", self.side("ours", 3), (Rival("the best", sides, (Bar("ratio", 1, at_most=True),)),),
                                        median_of("tok_s"), unit="s", lower_is_better=True), pairs=5)
        self.assertEqual([line["peer"], line["ratio"], line["unit"], line["bars"]], [4, 0.75, "s", {"ratio ≤ 1": "met"}])

    def test_a_missing_peer_is_no_peer_and_the_others_run(self):
        gone = self.side("gone", 1, needs=(self.folder / "nowhere",), way_out="make it")
        ours, there = self.side("ours", 3), self.side("there", 1)
        first, second = self.lines(Comparison("", ours, (Rival("Gone", (there, gone)), Rival("There", (there,))), median_of("tok_s")))
        self.assertEqual([first["peer"], first["peer_name"], "ratio" in first], ["no peer", "Gone", False])
        self.assertEqual(first["way_out"], f"{self.folder / 'nowhere'} is not there; make it")
        self.assertEqual(second["ratio"], 3)
        (self.folder / "order").unlink()
        (line,) = self.lines(Comparison("", ours, (Rival("Gone", (gone,)),), median_of("tok_s")))
        self.assertEqual(line["peer"], "no peer")
        self.assertFalse((self.folder / "order").exists(), "ours was run for nothing")

    def test_a_peer_that_can_not_do_it_is_no_peer(self):
        cannot = self.side("cannot", {"unsupported": "at most 4 sequences"})
        ours, can = self.side("ours", 3), self.side("can", 1)
        first, second = self.lines(Comparison("", ours, (Rival("Cannot", (cannot,)), Rival("Can", (can,))), median_of("tok_s")), pairs=2)
        self.assertEqual([first["peer"], first["way_out"]], ["no peer", "at most 4 sequences"])
        self.assertEqual([second["ratio"], second["pairs"]], [3, 2])
        self.assertEqual(self.order(), "ours cannot can can ours".split())

    def test_the_limit_is_the_best_library_of_the_round(self):
        rates = ({"gflops": {"median": 100}}, {"gflops": {"median": 160}})
        limit = Limit((self.side("MKL", *rates), self.side("OpenBLAS", *rates[::-1])), flop=0.5e9)
        bars = ((Bar("ratio", 9), Bar("of_limit", 0.9)), Bar("rss_ratio", 0.4, at_most=True))
        comparison = Comparison("", self.side("ours", 300), (Rival("A", (self.side("a", 100),), bars),), median_of("tok_s"), limit=limit)
        (line,) = self.lines(comparison, pairs=2)
        self.assertEqual(self.order(), "ours a MKL OpenBLAS OpenBLAS MKL a ours".split())
        self.assertEqual([line[field] for field in ("limit", "of_limit", "gemm_gflops")], [320, 0.938, {"MKL": 130, "OpenBLAS": 130}])
        self.assertEqual(set(line["bars"].values()), {"too few pairs"})
        self.assertEqual(self.lines(comparison, pairs=5)[0]["bars"],
                         {"ratio ≥ 9 or of_limit ≥ 0.9": "met", "rss_ratio ≤ 0.4": "missed"})

    def test_without_a_library_the_limit_is_left_out(self):
        limit = Limit((self.side("MKL", 1, needs=(self.folder / "nowhere",)),), flop=1)
        rival = Rival("A", (self.side("a", 100),), ((Bar("ratio", 9), Bar("of_limit", 0.9)),))
        (line,) = self.lines(Comparison("", self.side("ours", 300), (rival,), median_of("tok_s"), limit=limit), pairs=5)
        self.assertNotIn("of_limit", line)
        self.assertEqual(line["bars"], {"ratio ≥ 9 or of_limit ≥ 0.9": "not measured"})

    def test_checks_see_every_run_and_no_limit(self):
        seen = {}

        def check(entries):
            seen.update({side: len(runs) for side, runs in entries.items()})
            return {"more": 1}

        def check_probes(probes):
            seen["probes"] = {side: entry["tok_s"]["median"] for side, entry in probes.items()}
            return {"probed": 2}

        ours, a = self.side("ours", 7, 3), self.side("a", 8, 1)
        ours, a = (dataclasses.replace(side, probe=side.command) for side in (ours, a))
        limit = Limit((self.side("MKL", {"gflops": {"median": 1}}),), flop=1)
        comparison = Comparison("", ours, (Rival("A", (a,)),), median_of("tok_s"), check=check, check_probes=check_probes, limit=limit)
        (line,) = self.lines(comparison, pairs=2)
        self.assertEqual(seen, {"ours": 2, "a": 2, "probes": {"ours": 7, "a": 8}})
        self.assertEqual([line["more"], line["probed"], line["ratio"]], [1, 2, 3])
        self.assertEqual(self.order()[:2], ["ours", "a"], "probes come before what is timed")

    def test_ours_alone(self):
        ours, a = self.side("ours", 3), self.side("a", 1)
        (line,) = self.lines(Comparison("", ours, (Rival("A", (a,)),), median_of("tok_s")), pairs=2, ours_only=True)
        self.assertEqual([line["ours"], line["peer"], line["pairs"], line["rss_ours"]], [3, "not asked", 2, 100])
        self.assertEqual(self.order(), ["ours", "ours"])
        self.assertEqual(line["command"], "tests/perf/compare a-name --pairs 2 --ours-only")

    def test_a_busy_machine_is_told(self):
        runner = Runner(MACHINE, log=io.StringIO())
        run = {"wall_s": 2.0, "other_s": 0.5, "versions": {"torch": "2.11"}}
        facts = runner.facts("a-name", {"ours": [run], "a": [run | {"other_s": 0.1, "versions": {"gguf": "1"}}]})
        self.assertEqual([facts["other_cores"], facts["versions"]], [0.15, {"torch": "2.11", "gguf": "1"}])
        self.assertIn("0.15 cores busy", runner.log.getvalue())
        runner = Runner(MACHINE, log=io.StringIO())
        runner.facts("a-name", {"ours": [run | {"other_s": 0.1}]})
        self.assertEqual(runner.log.getvalue(), "")


class BarsTest(unittest.TestCase):
    def test_the_whole_spread_decides(self):
        for bar, spread, word in ((Bar("x", 1.4), (1.5, 1.4, 1.6), "met"), (Bar("x", 1.4), (1.5, 1.39, 1.6), "unclear"),
                                  (Bar("x", 1.4), (1.3, 1.2, 1.39), "missed"), (Bar("x", 1, True), (0.9, 0.8, 1.0), "met"),
                                  (Bar("x", 1, True), (0.9, 0.8, 1.1), "unclear"), (Bar("x", 1, True), (1.2, 1.1, 1.3), "missed"),
                                  (Bar("y", 1), (1, 1, 1), "not measured")):
            self.assertEqual(bar.verdict({"x": spread}), word, (bar, spread))

    def test_one_of_two_suffices(self):
        either = (Bar("x", 2), Bar("y", 2))
        for x, y, word in ((3, 1, "met"), (1, 3, "met"), (1, 1, "missed")):
            self.assertEqual(verdicts((either,), {"x": (x,) * 3, "y": (y,) * 3}), {"x ≥ 2 or y ≥ 2": word})
        self.assertEqual(verdicts((either,), {"x": (2, 1, 3), "y": (1, 1, 1)}), {"x ≥ 2 or y ≥ 2": "unclear"})


class ProcessTest(Folder):
    def run_python(self, text, **more):
        return process.run((sys.executable, "-IS", "-c", text), "it", **more)

    def test_measures_what_the_program_does_not_say(self):
        entry = self.run_python("import time; x = bytearray(200 << 20); time.sleep(0.3); print('noise'); print('{\"a\": 1}')")
        self.assertEqual(entry["a"], 1)
        self.assertGreaterEqual(entry["peak_rss_mib"], 200)
        self.assertGreaterEqual(entry["wall_s"], 0.3)
        self.assertGreaterEqual(entry["other_s"], 0)
        self.assertEqual(self.run_python("print('{\"peak_rss_mib\": 7}')")["peak_rss_mib"], 7)
        self.assertEqual(self.run_python("print('{\\n \"a\": [\\n 1]}')")["a"], [1])

    def test_refuses_what_is_no_result(self):
        for text, words in (("raise SystemExit('no room')", "ended with 1: no room"), ("print('[1]')", "printed no JSON object"),
                            ("pass", "printed no JSON object"), ("print('{} behind')", "printed no JSON object")):
            with self.assertRaisesRegex(Refused, words):
                self.run_python(text)
        with self.assertRaisesRegex(Refused, "can't be started"):
            process.run((self.folder / "nowhere",), "it")

    def test_ends_what_hangs_and_all_that_it_started(self):
        text = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(self.folder / 'pid')!r}, "w").write(str(child.pid))
child.wait()
"""
        with self.assertRaisesRegex(Refused, "ended after 5 s"):
            self.run_python(text, limit_s=5)
        with contextlib.suppress(ProcessLookupError):  # it has gone already
            child = os.pidfd_open(int((self.folder / "pid").read_text()))
            self.addCleanup(os.close, child)
            self.assertEqual(select.select([child], [], [], 60)[0], [child], "its child goes on")


class WorkTest(unittest.TestCase):
    def test_products_of_a_step_are_those_of_the_design(self):
        """performance.md §3: 468 + 116 + 63 GFLOP for 2×512 tokens in the paper's form."""
        self.assertAlmostEqual(1024 * work.flop_per_token(SMOLLM2, 512, "dex") / 1e9, 468 + 116 + 63, delta=2)
        shapes = work.gemm_shapes(SMOLLM2, 512, "dex")
        total = 2 * sum(2 * m * n * k * often for _, m, n, k, often in shapes)
        self.assertAlmostEqual(total / 1e9, 468 + 116, delta=2)

    def test_lora_s_by_hand(self):
        tiny = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16, "num_hidden_layers": 3,
                "vocab_size": 100}
        # A layer's matrices: q, o 8·8; k, v 8·4; gate, up, down 8·16.
        base = 4 * (2 * 64 + 2 * 32 + 3 * 128)
        factors = 6 * 2 * ((8 + 8) + (8 + 4) + (8 + 4) + (8 + 8))
        attention = 3.5 * 4 * 5 * 8
        self.assertEqual(work.flop_per_token(tiny, 10, "lora", rank=2), 3 * (base + factors + attention) + 4 * 100 * 8)
        self.assertFalse([shape for shape in work.gemm_shapes(tiny, 32, "lora") if shape[0] == "weight"])

    def test_ids_are_those_of_the_peers(self):
        self.assertEqual(work.token_rows(2, 2, 1000), [[17, 936], [855, 774]])
        self.assertEqual(work.checksum([[1, 2], [3]]), f"{zlib.crc32(struct.pack('<3i', 1, 2, 3)):08x}")


class TrainingTest(Folder):
    def setUp(self):
        super().setUp()
        self.context = SimpleNamespace(config=SMOLLM2, quick=False, threads=2)
        ids = work.checksum(work.token_rows(2, 512, 49152))
        self.run = {"batch": 2, "seq": 512, "threads": 2, "warmup": 2, "steps": 4, "tokens_crc32": ids, "trained_parameters": 9,
                    "loss": [10.0] * 6, "prefix_hits": 3}

    def check(self, peer, steps=None):
        return training.same_work(self.context, steps)({"ours": [self.run], "peer": [self.run | peer]})

    def test_losses_must_agree(self):
        self.assertAlmostEqual(self.check({"loss": [10.0009] * 3 + [10.009] * 3})["loss_difference"], 9e-4, delta=1e-6)
        for loss, words in (([10.0, 10.0, 10.002] + [10.0] * 3, "first 3 steps"), ([10.0] * 5 + [10.02], "all steps"), ([10.0], "1")):
            with self.assertRaisesRegex(Refused, words):
                self.check({"loss": loss})

    def test_lora_s_first_loss_is_the_base_s(self):
        self.check({"loss": [10.0] + [11.0] * 5}, steps=1)
        with self.assertRaisesRegex(Refused, "the first step"):
            self.check({"loss": [10.01] + [10.0] * 5}, steps=1)

    def test_refuses_other_work(self):
        for field, value in (("batch", 1), ("seq", 256), ("threads", 1), ("steps", 3), ("tokens_crc32", "0"), ("trained_parameters", 8)):
            with self.assertRaisesRegex(Refused, field if field != "trained_parameters" else "8"):
                self.check({field: value})

    def test_the_prefix_must_have_been_read(self):
        check = training.prefix_was_read(self.context)
        self.assertEqual(check({"ours": [self.run], "ours, every layer": [self.run | {"loss": [1.0] * 6}]}), {})
        with self.assertRaisesRegex(Refused, "prefix"):
            check({"ours": [self.run | {"prefix_hits": 0}]})

    def test_train_starts_the_trainer_with_the_peer_s_work(self):
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(SMOLLM2))
        trainer = self.program(self.folder / "trainer", """
import json, os, pathlib, sys
spec, attempt = sys.argv[sys.argv.index("--spec") + 1], pathlib.Path(sys.argv[sys.argv.index("--attempt-dir") + 1])
attempt.mkdir()
points = [{"validLoss": 1}] + [{"trainLoss": 11 - i, "stepSeconds": s} for i, s in enumerate((9, 2, 1, 4))]
(attempt / "metrics.jsonl").write_text("".join(json.dumps(p) + "\\n" for p in points + [{"prefixHits": 5, "prefixMisses": 1}]))
print("training_start: 4 updates of 2 sequences, 123 trained parameters")
""")
        words = (sys.executable, PERF / "train", "--trainer", trainer, "--model", model, "--batch", "2", "--seq", "4", "--steps", "3",
                 "--warmup", "1", "--first-layer", "28")
        for method in ("dex", "lora"):
            kept = self.folder / method
            entry = process.run((*words, "--method", method, "--keep", kept), "train")
            self.assertEqual([entry[field] for field in ("mode", "trained_parameters", "tok_s", "loss", "prefix_hits")],
                             [method, 123, {"median": 4, "min": 2, "max": 8}, [11, 10, 9, 8], 5])
            self.assertEqual(entry["tokens_crc32"], work.checksum(work.token_rows(2, 4, 49152)))
            rows = [json.loads(line) for line in (kept / "rows.jsonl").read_text().splitlines()]
            self.assertEqual([row["input_ids"] for row in rows], work.token_rows(2, 4, 49152))
            spec = json.loads((kept / "start.json").read_text())["spec"]
            self.assertEqual([spec["hyperparameters"]["maxSteps"], spec["hyperparameters"]["firstLayer"]], [4, 28])
            if method == "lora":
                self.assertEqual(spec["lora"], {"r": 8, "alpha": 16, "targetModules": ["q_proj", "k_proj", "v_proj", "o_proj"]})
                self.assertNotIn("dex", spec)
            else:
                self.assertEqual(spec["dex"]["headSelection"]["heads"],
                                 [{"layer": layer, "heads": [1, 3, 5, 7]} for layer in (28, 29)])
        with self.assertRaisesRegex(Refused, "is there already"):
            process.run((*words, "--keep", self.folder / "dex"), "train")


class ServingTest(Folder):
    def setUp(self):
        super().setUp()
        self.context = Context(bin=self.folder / "bin", deps=self.folder, scripts=self.folder, threads=2)
        self.context.model.mkdir(parents=True)
        (self.context.model / "config.json").write_text(json.dumps(SMOLLM2))
        self.settings = serving.work(self.context, batch=8, prompt=128, new=64)
        self.ours = {"batch": 8, "prompt_tokens": 128, "new_tokens": 64, "threads": 2, "weights": "bf16", "generated": [1, 2, 3, 4]}
        self.peer = self.ours | {"weights": "fp32", "tokens_crc32": work.checksum(work.token_rows(8, 128, 49152))}

    def check(self, ours=(), peer=()):
        return serving.same_work(self.context, "bf16", self.settings)(
            {"ours": [self.ours, self.ours | dict(ours)], "a": [self.peer | dict(peer)]})

    def test_same_tokens_are_counted(self):
        self.assertEqual(self.check(peer={"generated": [1, 2, 9, 4]}), {"same_tokens": {"a": 2}})
        self.assertEqual(self.check(peer={"generated": [1, 2, 3]}), {"same_tokens": {"a": 3}})

    def test_refuses_other_work(self):
        for ours, peer, words in (({"weights": "int8"}, {}, "weights int8"), ({"batch": 1}, {}, "batch 1"),
                                  ({"generated": [1]}, {}, "other"),
                                  ({}, {"tokens_crc32": "0"}, "tokens_crc32"), ({}, {"new_tokens": 2}, "new_tokens"),
                                  ({}, {"threads": 1}, "threads")):
            with self.assertRaisesRegex(Refused, words):
                self.check(ours, peer)

    def test_the_probe_has_one_answer(self):
        prompt, answer = serving.known_answer()
        self.assertEqual(json.loads(serving.PROBE.read_text()), [prompt], "probe.json is not the golden prompt any more")
        self.assertGreater(json.loads((ROOT / "tests/data/golden/model.json").read_text())["cases"]["digits"]["greedy_margin"], 3)
        self.assertEqual(serving.same_answers({"ours": {"generated": answer}, "llama": {"generated": answer + [7]},
                                               "cannot": {"unsupported": "why"}}), {})
        with self.assertRaisesRegex(Refused, "llama made"):
            serving.same_answers({"llama": {"generated": answer[:-1] + [7]}})

    def test_both_sides_get_the_same_options(self):
        ours, llama = serving.ours(self.context, "bf16", self.settings), serving.llama(self.context, "f16", self.settings)
        common = ("--batch", 8, "--prompt-tokens", 128, "--new-tokens", 64, "--threads", 2, "--repeats", 3)
        self.assertEqual(ours.command[-len(common):], common)
        self.assertEqual(llama.command[-len(common) - 1:], (*common, "--json"))
        self.assertIn("--tokens", ours.probe)
        self.assertEqual(ours.probe[-1].split(","), [str(id) for id in serving.known_answer()[0]])
        self.assertIn(self.context.gguf("f16"), llama.needs)
        quick = serving.work(dataclasses.replace(self.context, quick=True), batch=8, prompt=128, new=64)
        self.assertEqual(quick, {"batch": 8, "prompt_tokens": 16, "new_tokens": 4, "threads": 2, "repeats": 1})

    def test_start_counts_the_wall_time_and_tells_the_inside(self):
        comparison = start.comparisons(self.context)["start"]
        self.assertIs(comparison.figure, wall_seconds)
        self.assertTrue(comparison.lower_is_better)
        run = self.ours | {"batch": 1, "prompt_tokens": 16, "new_tokens": 2, "load_s": 0.5, "ttft_s": {"median": 0.25}}
        ids = work.checksum(work.token_rows(1, 16, 49152))
        said = comparison.check({"ours": [run], "llama.cpp F16": [run | {"load_s": 0.1, "tokens_crc32": ids}]})
        self.assertEqual(said["load_and_first_token_s"], {"ours": 0.75, "llama.cpp F16": 0.35})

    def test_what_is_missing_has_a_way_out(self):
        (self.folder / "peer.py").write_text("")
        side = peer(self.context, "a", "peer.py", (), way_out="deploy/setup/peers makes it")
        self.assertIn("deploy/setup/peers", side.absent())
        self.assertIn("--peers", peer(self.context, "a", "gone.py", ()).absent())


class AdaptersTest(Folder):
    """make_adapters is the real one; the engine says what it was given, and is slower with more adapters."""

    def setUp(self):
        super().setUp()
        self.context = Context(bin=self.folder / "bin", deps=self.folder, scripts=self.folder, threads=2)
        self.context.model.mkdir(parents=True)
        (self.context.model / "config.json").write_text(json.dumps(SMOLLM2 | {"num_hidden_layers": 2, "hidden_size": 36}))
        (self.context.model / "model.safetensors").write_bytes(b"weights")

    def engine(self, generated="[1, 2]"):
        self.program(self.folder / "bin/dex-engine", f"""
import hashlib, json, os, struct, sys
option = lambda name: sys.argv[sys.argv.index(name) + 1]
number = lambda name: int(option(name))
folders = sorted(os.listdir(option("--adapters")))
hashes = set()
for folder in folders:
    with open(os.path.join(option("--adapters"), folder, "adapter_model.safetensors"), "rb") as file:
        raw = file.read()
    checksums = json.load(open(os.path.join(option("--adapters"), folder, "checksums.json")))
    hashes.add(hashlib.sha256(raw).hexdigest())
    assert checksums["adapter_model.safetensors"] in hashes
assert len(hashes) == len(folders) >= number("--distinct"), (hashes, folders)
length = int.from_bytes(raw[:8], "little")
header = json.loads(raw[8:8 + length])
assert len(raw) == 8 + length + max(entry["data_offsets"][1] for entry in header.values())
values = [struct.unpack("<f", bytes(2) + raw[at:at + 2])[0] for at in range(8 + length, len(raw), 2)]
assert all(2**-7 <= abs(value) < 2**-5 for value in values) and min(values) < 0 < max(values)
distinct, apart = number("--distinct"), "--branch-apart" in sys.argv
speed = 100 if distinct == 1 else 80 if apart else 50
print(json.dumps({{"batch": number("--batch"), "prompt_tokens": number("--prompt-tokens"), "new_tokens": number("--new-tokens"),
                  "threads": number("--threads"), "adapters": distinct, "adapter_bytes": distinct << 20, "generated": {generated},
                  "decode_tok_s": {{"median": speed}}, "peak_rss_mib": 7}}))
""")

    def lines(self, name, pairs=5):
        return adapters.comparisons(self.context)[name].lines(name, Runner(MACHINE, pairs=pairs, log=io.StringIO()))

    def test_a_batch_of_adapters_is_held_against_one_adapter(self):
        self.engine()
        (paper,) = self.lines("adapters-paper")
        self.assertEqual([paper[field] for field in ("ours", "peer", "peer_name", "ratio", "adapter_mib", "bars")],
                         [50, 100, "ours, one adapter", 0.5, 8, {"ratio ≥ 0.6": "missed"}])
        branch, peft = self.lines("adapters-branch")
        self.assertEqual([branch["ratio"], branch["adapter_mib"], branch["bars"]], [0.8, 64, {"ratio ≥ 0.7": "met"}])
        self.assertEqual(peft["peer"], "no peer")
        (folded,) = self.lines("adapters-branch-folded", pairs=1)
        self.assertEqual([folded["ratio"], "bars" in folded], [0.5, False])

    def test_the_peer_says_its_figure_by_number_of_adapters(self):
        self.assertEqual(adapters.decoding({"runs": [{"adapters": 64, "decode_tok_s": {"median": 47}}]}), 47)
        (self.folder / "peers/bin").mkdir(parents=True)
        (self.folder / "peers/bin/python").symlink_to(sys.executable)
        (self.folder / "peer_multi_adapter.py").write_text("""
import json, sys
number = lambda name: int(sys.argv[sys.argv.index(name) + 1])
print(json.dumps({"batch": number("--batch"), "prompt_tokens": number("--prompt-tokens"), "new_tokens": number("--new-tokens"),
                  "threads": number("--threads"), "tokens_crc32": "CRC", "peak_rss_mib": 9,
                  "runs": [{"adapters": number("--adapters"), "decode_tok_s": {"median": 10}}]}))
""".replace("CRC", work.checksum(work.token_rows(64, 16, 49152))))
        self.engine()
        _, peft = self.lines("adapters-branch")
        self.assertEqual([peft["ratio"], peft["bars"]], [8, {"ratio ≥ 5": "met"}])

    def test_refuses_replies_that_depend_on_their_neighbours(self):
        self.engine(generated="[1, 2 if distinct == 1 else 3]")
        with self.assertRaisesRegex(Refused, "beside other adapters"):
            self.lines("adapters-paper", pairs=1)


# A platform that makes a token a hundredth of a second after the one before, for as many as come; the first request finds no worker yet.
PLATFORM = """
import http.server, json, pathlib, signal, sys, threading, time
folder = pathlib.Path(sys.argv[sys.argv.index("--data-dir") + 1])
refused = threading.Event()
class Door(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(str(folder) + "/../requests", "a") as log:
            log.write(json.dumps([len(asked["prompt"]), asked["prompt"][0], asked["max_tokens"]]) + chr(10))
        if not refused.is_set():
            refused.set()
            return self.send_error(503)
        self.send_response(200)
        self.end_headers()
        events = [{"choices": [{"text": "w", "token_ids": [7]}]}] * (asked["max_tokens"] - SHORT)
        for event in [*events, {"choices": [{"text": "", "finish_reason": "length"}]}]:
            time.sleep(0.01)
            self.wfile.write(("data: " + json.dumps(event) + chr(10) * 2).encode())
        self.wfile.write(b"data: [DONE]" + bytes([10, 10]))
door = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
(folder / "endpoints.tmp").write_text(json.dumps({"http": f"127.0.0.1:{door.server_port}", "grpc": "here"}))
(folder / "endpoints.tmp").rename(folder / "endpoints.json")
door.serve_forever()
"""


class AloneTest(Folder):
    """Comparisons whose program measures both sides."""

    def lines(self, comparison, name, pairs=5, **more):
        return comparison.lines(name, Runner(MACHINE, pairs=pairs, log=io.StringIO(), **more))

    def context(self, quick=False):
        folder = self.folder / "models/smollm2-135m-instruct"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(SMOLLM2))
        return Context(bin=self.folder / "bin", deps=self.folder, scripts=self.folder, threads=2, quick=quick)

    def test_the_gateway_is_judged_by_what_it_adds_and_by_its_rate(self):
        self.program(self.folder / "tests/perf_gateway", f"""
import json, sys
assert sys.argv[1:3] == ["--gateway", "{self.folder}/bin/dex-gateway"]
if sys.argv[3] == "unary":
    print(json.dumps({{"through_p50_us": 200, "direct_p50_us": 80, "added_p50_us": 120, "unary_s": 14000, "gateway_cores": 1.1,
                      "peak_rss_mib": 30}}))
else:
    print(json.dumps({{"sse": {{"token_ms": 51, "longest_gap_ms": 70}}, "grpc": {{"token_ms": 50}}, "gateway_us_a_token": 40,
                      "peak_rss_mib": 30}}))
""")
        known = doors.comparisons(self.context())
        (gateway,) = self.lines(known["gateway"], "gateway")
        self.assertEqual([gateway[field] for field in ("ours", "peer", "unit", "ratio", "added_p50_us", "unary_s", "rss_ours", "pairs")],
                         [200, 80, "µs", 2.5, 120, 14000, 30, 5])
        self.assertEqual(gateway["bars"], {"added_p50_us ≤ 150": "met", "unary_s ≥ 15000": "missed"})
        (streams,) = self.lines(known["sse-200"], "sse-200", pairs=1)
        self.assertEqual([streams["ratio"], streams["bars"]], [1.02, {"ratio ≤ 1.1": "too few pairs"}])
        self.assertNotIn("bars", self.lines(known["sse-200"], "sse-200", pairs=1, quick=True)[0])

    def test_the_queue_s_rates_are_the_test_s_figures_whatever_it_thinks_of_them(self):
        self.program(self.folder / "tests/scheduler_scale_test", """
import json, os, sys
assert os.environ.get("DEX_LONG") == "1" and sys.argv[1] == "--gtest_filter=ThroughputTest.AttemptsASecond"
with open(os.environ["DEX_FIGURES"], "w") as figures:
    for name, value in (("always", 1100), ("everysec", 1900), ("always_two_shards", 2000), ("everysec_two_shards", 3000)):
        figures.write(json.dumps({"promise": "queue", "name": "attempts_per_second_" + name, "value": value}) + chr(10))
sys.exit(1)
""")
        commands = self.folder / "commands"
        self.program(commands / "redis-server", """
import os, signal, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[sys.argv.index("--unixsocket") + 1])
signal.pause()
""")
        self.program(commands / "redis-benchmark", "print('\"test\",\"rps\"\\n\"INCR\",\"9500.00\"')")
        before = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        os.environ["PATH"] = f"{commands}:{before}"
        (line,) = self.lines(doors.comparisons(self.context())["queue"], "queue")
        self.assertEqual([line[field] for field in ("ours", "peer", "ratio", "always", "everysec_two_shards")], [1900, 9500, 0.2, 1100, 3000])
        self.assertEqual(line["bars"], {"everysec ≥ 2000": "missed", "always ≥ 1000": "met"})

    def load(self, what, *words, short=0):
        self.context()
        self.program(self.folder / "bin/dexd", PLATFORM.replace("SHORT", str(short)))
        return subprocess.run([sys.executable, PERF / "serve_load", what, "--bin", self.folder / "bin", "--deps", self.folder,
                               "--prompt-tokens", "5", "--new-tokens", "6", *words], capture_output=True, text=True,
                              env={**os.environ, "TMPDIR": str(self.folder)})

    def test_requests_come_at_random_times_and_none_twice(self):
        done = self.load("ttft", "--unloaded", "3", "--seconds", "0.5", "--requests", "8")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertGreaterEqual(found["unloaded_median_s"], 0.01)
        self.assertLessEqual(found["unloaded_median_s"], found["loaded_p99_s"] * 2)
        self.assertAlmostEqual(found["requests_s"] / found["saturation_requests_s"], 0.7, delta=1e-6)
        self.assertEqual(found["requests"], 8)
        asked = [json.loads(line) for line in (self.folder / "requests").read_text().splitlines()]
        self.assertEqual({length for length, _, _ in asked}, {5})
        self.assertEqual(len({first for _, first, _ in asked}), len(asked), "a prefix is in the cache")
        self.assertFalse(list(self.folder.glob("dex-perf-*")), "its data stays")

    def test_a_stream_that_ends_early_is_no_figure(self):
        done = self.load("ttft", "--unloaded", "1", "--seconds", "0.1", "--requests", "1", short=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("a stream had 1 tokens of 2", done.stderr)

    def test_streams_take_turns_over_http_and_grpc(self):
        self.program(self.folder / "bin/stream_client", """
import sys
assert sys.argv[1] == "here" and sys.argv[4] == "6", sys.argv
print('{"tokens": 6, "longest_gap_seconds": 0.02, "seconds_a_token": 0.004}')
""")
        done = self.load("sse", "--turns", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([found["grpc_token_s"], found["turns"]], [0.004, 2])
        self.assertGreaterEqual(found["http_token_s"], 0.01)

    def test_what_the_platform_is_asked_for(self):
        known = whole.comparisons(self.context(quick=True))
        self.assertIn("--requests", known["ttft"].side.command)
        self.assertEqual([str(bar) for bar in known["ttft"].bars + known["sse"].bars], ["ratio ≤ 4", "ratio ≤ 1.1"])


class CountsTest(Folder):
    """counts, with a valgrind that says what it is told to."""

    def setUp(self):
        super().setUp()
        self.kept = self.folder / "kept.json"
        self.about()

    def about(self, **more):
        about = {"compiler": "12.2", "optimised": True, "sanitized": False, "parts": ["a", "b"]} | more
        self.program(self.folder / "counted", f"print({json.dumps(about)!r})")

    def counts(self, *words, found=(("a", 1000), ("b", 2000)), valgrind=True):
        self.program(self.folder / "path/valgrind", f"""
import sys
assert "--tool=callgrind" in sys.argv and "--toggle-collect=dex_counted" in sys.argv and sys.argv[-1] == "model", sys.argv
print("==1== Events    : Ir", file=sys.stderr)
print("==1== Collected :", {dict(found)!r}[sys.argv[-2]], file=sys.stderr)
""")
        path = f"{self.folder}/path" if valgrind else "/nowhere"
        return subprocess.run([sys.executable, PERF / "counts/counts", "--program", self.folder / "counted", "--model", "model", "--kept",
                               self.kept, *words], capture_output=True, text=True, env={"PATH": path})

    def test_two_per_cent_either_way_are_as_kept(self):
        self.assertEqual(self.counts("--write").returncode, 0)
        self.assertEqual(json.loads(self.kept.read_text()), {"compiler": "12.2", "counts": {"a": 1000, "b": 2000}})
        self.assertEqual(self.counts(found=(("a", 1020), ("b", 1960))).returncode, 0)
        for found, said in (((("a", 1021), ("b", 2000)), "a +2.1%"), ((("a", 1000), ("b", 1950)), "b -2.5%")):
            done = self.counts(found=found)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(said, done.stderr)
        self.assertEqual(self.counts("b", found=(("a", 9), ("b", 2000))).returncode, 0)

    def test_a_part_that_is_written_leaves_the_others(self):
        self.counts("--write")
        self.counts("b", "--write", found=(("b", 5000),))
        self.assertEqual(json.loads(self.kept.read_text())["counts"], {"a": 1000, "b": 5000})

    def test_says_why_it_says_nothing(self):
        self.assertEqual([self.counts().returncode, self.counts(valgrind=False).returncode], [77, 77])
        self.assertIn("no count is kept of a, b", self.counts().stdout)
        self.counts("--write")
        for about, said in (({"compiler": "13.0"}, "this one is 13.0"), ({"sanitized": True}, "sanitizer"), ({"optimised": False}, "optim")):
            self.about(**about)
            done = self.counts()
            self.assertEqual([done.returncode, said in done.stdout], [77, True], done.stdout)

    def test_nothing_counted_is_a_failure(self):
        self.assertIn("counted nothing", self.counts(found=(("a", 0), ("b", 0))).stderr)
        self.assertIn('no part "c"', self.counts("c").stderr)


class AccuracyTest(Folder):
    def context(self, quick=False):
        self.program(self.folder / "bin/dex-engine", """
import json, sys
option = lambda name: sys.argv[sys.argv.index(name) + 1]
text = option("--file").split("/")[-1].split(".")[0]
exact = {"code": 5.0, "long_text": 10.0, "multilingual": 20.0}[text]
value = exact * {"f32": 1, "bf16": 1.0005, "int8": 1.006 if text == "code" else 1.001, "int4": 1.049}[option("--dtype")]
open(sys.argv[0] + ".calls", "a").write(option("--dtype") + " " + text + "\\n")
print(json.dumps({"complete": True, "rows": [{"metric": "loss", "subject": "base", "dims": {}, "value": 1},
                                             {"metric": "perplexity", "subject": "base", "dims": {}, "value": value}]}, indent=1))
""")
        return Context(bin=self.folder / "bin", deps=self.folder, scripts=self.folder, threads=2, quick=quick)

    def lines(self, context):
        runner = Runner(MACHINE, log=io.StringIO())
        return {name: one.lines(name, runner)[0] for name, one in accuracy.comparisons(context).items()}

    def test_each_text_is_a_pair_and_the_worst_is_judged(self):
        lines = self.lines(self.context())
        bf16, int8 = lines["accuracy-bf16"], lines["accuracy-int8"]
        self.assertEqual([int8[field] for field in ("ratio", "ratio_min", "ratio_max", "pairs", "peer")], [1.001, 1.001, 1.006, 3, 10])
        self.assertEqual([bf16["bars"], int8["bars"]], [{"ratio_max ≤ 1.001": "met"}, {"ratio_max ≤ 1.005": "missed"}])
        self.assertEqual(lines["accuracy-int4"]["bars"], {"ratio_max ≤ 1.05": "met"})
        self.assertEqual(int8["texts"]["code"], {"int8": 5.03, "f32": 5.0})
        calls = (self.folder / "bin/dex-engine.calls").read_text().splitlines()
        self.assertEqual(sum(call.startswith("f32") for call in calls), 3, "fp32 is measured once for all formats")

    def test_quick_judges_nothing(self):
        line = self.lines(self.context(quick=True))["accuracy-int8"]
        self.assertEqual(["bars" in line, line["pairs"]], [False, 1])


class CommandTest(Folder):
    def compare(self, *words, **environment):
        done = subprocess.run([sys.executable, PERF / "compare", *map(str, words)], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "DEX_DEPS_DIR": str(self.folder), **environment})
        return done.returncode, done.stdout.splitlines(), done.stderr

    def model(self):
        folder = self.folder / "models/smollm2-135m-instruct"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(SMOLLM2))

    def test_every_name_has_a_smoke_test(self):
        known = comparisons.comparisons(Context(bin=self.folder, deps=self.folder, scripts=self.folder, threads=1))
        lists = re.findall(r"foreach\(_name (.*?)\)", (PERF / "CMakeLists.txt").read_text(), re.DOTALL)
        names = " ".join(lists).split()
        self.assertEqual(sorted(names), sorted(known))
        self.assertFalse(set(comparisons.NOT_YET) & set(known))

    def test_names(self):
        known = {"train-kvo": 1, "prefill": 1, "prefill-512": 1, "accuracy-bf16": 1, "accuracy-int8": 1}
        self.assertEqual(comparisons.chosen([], known), list(known))
        self.assertEqual(comparisons.chosen(["prefill", "accuracy", "accuracy-int8"], known), ["prefill", "accuracy-bf16", "accuracy-int8"])
        for name, words in (("decode", "there is no"), ("adapters-pool", "not measured yet")):
            with self.assertRaisesRegex(ValueError, words):
                comparisons.chosen([name], known)

    def test_lists_without_anything_installed(self):
        code, lines, _ = self.compare("--list")
        self.assertEqual(code, 0)
        self.assertTrue(any(line.startswith("train-kvo ") for line in lines))
        self.assertTrue(any(re.match(r"adapters-pool +not yet: ", line) for line in lines))

    def test_says_what_is_wrong(self):
        for words, said in ((("nothing",), 'there is no "nothing"'), (("train-kvo",), "deploy/setup/all"), (("--pairs", 0), "--pairs")):
            code, _, error = self.compare(*words)
            self.assertEqual(code, 2, words)
            self.assertIn(said, error)

    def test_a_missing_peer_is_never_a_pass(self):
        self.model()
        code, lines, _ = self.compare("decode-bf16", "--bin", self.folder)
        self.assertEqual(code, 1)
        self.assertEqual(json.loads(lines[0])["peer"], "no peer")

    def test_ours_alone_by_the_command(self):
        """A stand-in for dex-engine that answers the probe rightly, or wrongly."""
        self.model()
        engine = """
import json, sys
option = lambda name: sys.argv[sys.argv.index(name) + 1]
number = lambda name: int(option(name))
print(json.dumps({"batch": number("--batch"), "prompt_tokens": number("--prompt-tokens"), "new_tokens": number("--new-tokens"),
                  "threads": number("--threads"), "weights": option("--dtype"), "decode_tok_s": {"median": 5}, "peak_rss_mib": 7,
                  "generated": ANSWER if "--tokens" in sys.argv else [1, 2]}))
"""
        for answer, expected in ((serving.known_answer()[1], 0), ([1] * 8, 1)):
            self.program(self.folder / "bin/dex-engine", engine.replace("ANSWER", str(answer)))
            code, lines, error = self.compare("--quick", "--ours-only", "decode-8", "--bin", self.folder / "bin")
            line = json.loads(lines[0])
            self.assertEqual((code, "failed" in line), (expected, expected == 1), error)
            if expected == 0:
                self.assertEqual([line["ours"], line["rss_ours"], line["peer"]], [5, 7, "not asked"])
                self.assertEqual(line["command"], "tests/perf/compare decode-8 --quick --ours-only")
            else:
                self.assertIn("this is not the same model", line["failed"])


if __name__ == "__main__":
    unittest.main()
