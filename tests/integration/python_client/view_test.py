"""What a job looks like to a notebook, a data frame and an experiment tracker; pure, out of events."""

import io
import math
import sys
import types
import xml.etree.ElementTree as ElementTree

import pytest
from dex_client import Curves, DexError
from dex_client._curves import rows_of
from dex_client._mirror import Mirror
from dex_client._progress import Progress
from dex_client._svg import head_grid, line_chart, thinned, ticks
from dex_client._view import JobView
from dex_client.v1 import events_pb2, finetuning_pb2


def event(sequence, **data):
    return events_pb2.FineTuningEvent(sequence=sequence, type=next(iter(data)), **data)


def history():
    """Two steps, an evaluation between, a rollback that says step 2 again, and a selection of heads."""
    return [
        event(1, head_selection_complete={"layers": [{"entropy": [2.0, 1.0, 3.0], "selected": [2]},
                                                     {"entropy": [1.5, 1.0, 0.5], "selected": [0, 1]}]}),
        event(2, eval_complete={"step": 0, "valid_loss": 3.5, "token_accuracy": 0.2, "branch_ratio": 0.0}),
        event(3, metrics={"step": 1, "train_loss": 3.25, "learning_rate": 1e-4, "grad_norm": 1.5, "lambda_mean": 0.0625}),
        event(4, metrics={"step": 2, "train_loss": 99.0, "lambda": [0.5, 0.25], "branch_ratio": [math.nan, 0.125]}),
        event(6, metrics={"step": 2, "train_loss": 3.0, "tokens_per_second": 10.0}),
        event(7, eval_complete={"step": 2, "valid_loss": 3.125, "token_accuracy": 0.25, "branch_ratio": 0.03125})]


def view(state="JOB_STATE_RUNNING", **fields):
    seen = JobView(finetuning_pb2.FineTuningJob(id="ftjob-1", model="m", state=state, **fields))
    seen.noted(history())
    return seen


def test_rows_have_one_line_a_step_and_the_last_word_counts():
    rows = rows_of(reversed(history()))
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[0] == {"step": 0, "valid_loss": 3.5, "token_accuracy": 0.2, "branch_ratio": 0.0}
    assert rows[2]["train_loss"] == 3.0 and rows[2]["valid_loss"] == 3.125 and rows[2]["tokens_per_second"] == 10
    assert rows[2]["lambda"] == [0.5, 0.25] and rows[2]["branch_ratio_by_layer"] == [None, 0.125]
    curves = Curves(rows)
    assert curves.series("valid_loss") == [(0, 3.5), (2, 3.125)] and len(curves) == 3 and curves[-1] is not None


def test_a_data_frame_where_pandas_is_there_and_the_way_out_where_not():
    try:
        import pandas
    except ImportError:
        with pytest.raises(ImportError, match="pip install pandas"):
            Curves(rows_of(history())).to_pandas()
        return
    frame = Curves(rows_of(history())).to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["step"]) == [0, 1, 2] and frame["train_loss"].isna()[0]


def elements(svg, name):
    return list(ElementTree.fromstring(svg).iter(f"{{http://www.w3.org/2000/svg}}{name}"))


def test_a_chart_stands_alone_and_shows_its_extremes():
    svg = line_chart("Loss <b>", {"train": [(0, 4.0), (1, 2.0), (2, 3.0)], "validation": [(0, 3.5)], "absent": []})
    assert "Loss &lt;b&gt;" in svg and "train 4 to 3" in svg and "absent" not in svg
    assert len(elements(svg, "polyline")) == 2
    first = [tuple(map(float, point.split(","))) for point in elements(svg, "polyline")[0].get("points").split()]
    assert [x for x, _ in first] == sorted(x for x, _ in first) and first[0][1] < first[2][1] < first[1][1]  # y grows downwards
    assert line_chart("x", {"none": []}) == ""
    assert elements(line_chart("flat", {"a": [(1, 2.0), (2, 2.0)]}), "polyline")


def test_ticks_are_round_and_inside_and_thinning_keeps_peaks():
    assert ticks(0.0, 10.0) == [0, 2, 4, 6, 8, 10] and ticks(0.123, 0.9, 4) == [0.2, 0.4, 0.6, 0.8]
    points = [(float(x), 100.0 if x == 7777 else x % 5.0) for x in range(20_000)]
    kept = thinned(points)
    assert len(kept) <= 700 and (7777.0, 100.0) in kept and kept == sorted(kept)


def test_the_head_grid_marks_what_was_chosen_in_more_than_colour():
    svg = head_grid([([2.0, 1.0, 3.0], {2}), ([1.5, 1.0, 0.5], {0, 1})])
    assert len(elements(svg, "rect")) == 6 and len(elements(svg, "circle")) == 3 and "3 of 6 heads selected" in svg
    titles = [title.text for title in elements(svg, "title")]
    assert "layer 0, head 2, entropy 3, selected" in titles and "layer 1, head 2, entropy 0.5" in titles
    assert head_grid([]) == "" and elements(head_grid([([], {1})]), "circle")


def test_html_has_state_curves_and_heads_and_asks_nobody():
    text = view(error={"code": "x", "message": "<script>alert(1)</script>"}, fine_tuned_model="ft:a",
                branch_effect={"verdict": "VERDICT_WEAK", "value": 0.01}).known_html()
    assert "ftjob-1" in text and "running" in text and "ft:a" in text and "WEAK, 0.01" in text
    assert text.count("<svg") >= 4 and "3 of 6 heads selected" in text
    assert "<script" not in text and "&lt;script&gt;" in text
    outside = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not [word for word in ("http", "src=", "url(", "@import") if word in outside]
    plot = view().known_plot()
    assert elements(plot._repr_svg_(), "polyline") and "heads selected" in plot.svg


def test_one_line_for_a_terminal():
    seen = view(progress={"step": 2, "total_steps": 8, "train_loss": 3.0, "tokens_per_second": 120, "estimated_remaining_seconds": 9})
    assert repr(seen) == "JobView(ftjob-1, running  step 2/8  loss 3.0000  120 tok/s, 9 s left)"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_line_on_a_terminal_and_nothing_elsewhere():
    terminal, file = Terminal(), io.StringIO()
    for stream, wanted in ((terminal, True), (file, True)):
        shown = Progress(wanted, stream)
        shown.show(view())
        shown.end()
    assert terminal.getvalue() == "\r\x1b[Krunning\n" and file.getvalue() == ""
    quiet = Terminal()
    Progress(False, quiet).show(view())
    assert quiet.getvalue() == ""


def test_progress_in_a_notebook_changes_one_display_in_place(monkeypatch):
    updates = []
    handle = types.SimpleNamespace(update=lambda data, raw: updates.append((data, raw)))
    display = types.ModuleType("IPython.display")
    display.display = lambda value, display_id: handle
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    shown = Progress(True, io.StringIO())
    shown.show(view())
    shown.end()
    (data, raw), = updates
    assert raw and "<svg" in data["text/html"] and data["text/plain"] == "JobView(ftjob-1, running)"


class Recorder:
    def __init__(self):
        self.rows = []


class Wandb(Recorder):
    def log(self, data, step=None):
        assert not self.rows or step >= self.rows[-1][0], "W&B takes no earlier step"
        self.rows.append((step, data))


class Mlflow(Recorder):
    def log_metrics(self, metrics, step=None):
        self.rows.append((step, metrics))


class Tensorboard(Recorder):
    def add_scalar(self, tag, value, step):
        self.rows.append((step, {tag: value}))


@pytest.mark.parametrize("kind", [Wandb, Mlflow, Tensorboard])
def test_metrics_are_mirrored_to_what_a_run_can_take(kind):
    run = kind()
    mirror = Mirror(run)
    for told in [*history(), event(8, metrics={"step": 1, "train_loss": 5.0}), event(9, metrics={"step": 3, "train_loss": 2.5})]:
        mirror.take(told)
    losses = [(step, row["train/loss"]) for step, row in run.rows if "train/loss" in row]
    repeated = [] if kind is Wandb else [(1, 5.0)]
    assert losses == [(1, 3.25), (2, 99.0), (2, 3.0), *repeated, (3, 2.5)]
    assert [(step, row["valid/loss"]) for step, row in run.rows if "valid/loss" in row] == [(0, 3.5), (2, 3.125)]
    assert mirror.rows == 6 + len(repeated)


def test_what_is_no_run_is_refused():
    with pytest.raises(DexError, match="a dict can't be mirrored to; give a W&B run"):
        Mirror({})
