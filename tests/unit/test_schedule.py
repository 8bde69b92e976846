"""The Schedule's text forms, and its way through plain data."""
import json

import numpy as np
import pytest
from hypothesis import given

import pallas_lite as pl
from pallas_lite.engines.record import record
from pallas_lite.errors import SpecError
from pallas_lite.specs import Operand
from pallas_lite.table import aligned
from tests.unit import loops
from tests.unit.loops import blocking, rolled
from tests.unit.test_pictures import gather
from tests.unit.test_pipeline import pipelines


def test_table_of_the_double_buffer(golden):
    golden("double_buffer_table", str(pl.record(rolled, 4)))


def test_table_keeps_program_order_when_verbs_come_out_of_order(golden):
    golden("blocking_table", str(pl.record(blocking, 3, depth=1)))


def test_a_long_table_folds_its_middle():
    text = str(pl.record(rolled, 64))
    assert "… 48 more rows" in text
    assert len(text.splitlines()) == 1 + 16 + 1


def test_a_marked_row_is_shown_even_in_the_fold():
    schedule = pl.record(rolled, 64)
    middle = next(i for i, e in enumerate(schedule) if e.step == 30 and e.verb == "run")
    assert "✗ here" in schedule.table({middle: "here"})


def with_an_edge():
    tail = Operand("x", "x", False, 2, (5,), np.dtype(np.float32), (2,), (), [(0,), (1,), (2,)], starts=((2, -1),))
    return record(3, [tail])


@pytest.mark.parametrize("schedule", [pl.record(rolled, 5), with_an_edge()])
def test_plain_data_gives_the_same_schedule_back(schedule):
    assert pl.Schedule.from_plain(json.loads(json.dumps(schedule.to_plain()))) == schedule


def test_blocks_that_prefetched_scalars_choose_travel_too():
    schedule = gather().schedule
    assert pl.Schedule.from_plain(json.loads(json.dumps(schedule.to_plain()))) == schedule


@pytest.mark.parametrize("spoil", [
    lambda d: d.pop("events"),
    lambda d: d["events"][0].__setitem__(0, "format_disk"),
    lambda d: d["events"][0].__setitem__(4, 2),
    lambda d: d["events"][0].__setitem__(4, True),
    lambda d: d["events"][0].__setitem__(2, "Z"),
    lambda d: d["events"][0].__setitem__(1, "0"),
    lambda d: d["events"][0].append(1),
    lambda d: d["operands"][0].__setitem__(3, 0),
    lambda d: d["operands"][0].__setitem__(6, [4, 4]),
    lambda d: d["operands"][0].__setitem__(7, [[1]]),
    lambda d: d["events"][0].__setitem__(3, [0, 0]),
    lambda d: d.__setitem__("events", 7),
    lambda d: d.__setitem__("flops", "many"),
])
def test_spoilt_plain_data_is_refused(spoil):
    data = json.loads(json.dumps(pl.record(rolled, 3).to_plain()))
    spoil(data)
    with pytest.raises(pl.PallasLiteError, match="not a schedule"):
        pl.Schedule.from_plain(data)


def test_sram_bytes_count_every_slot():
    assert pl.record(rolled, 4, depth=2, block_bytes=10).sram_bytes == 2 * 2 * 10


def test_a_wide_table_lists_a_cells_copies_on_several_lines_and_loses_none():
    """Three operands of three slots: the first step starts eight copies. A notebook would break such a row anywhere."""
    copies = [f"{name}[{n}, 0] → {n}" for n in range(3) for name in "abc"]
    rows = [["0", ", ".join(copies), "a[0], b[0], c[0]", "run", "o[0, 0] ← 0", ""],
            ["1", "", "a[1]", "run", "", "o[0]"]]
    table = aligned(["step", "copy_in start", "copy_in wait", "run", "copy_out start", "copy_out wait"],
                    dict(enumerate(rows)), ["  ✗ race", ""])
    lines = table.split("\n")
    assert len(lines) > 3 and max(map(len, lines)) <= 108, "its mark stands on the page, too"
    assert [c for line in lines for c in copies if c in line] == copies
    assert lines[1].startswith("   0  a[0, 0] → 0, ") and lines[1].endswith("✗ race")
    assert lines[-1].split() == ["1", "·", "a[1]", "run", "·", "o[0]"]
    starts = {len(line) - len(line.lstrip()) for line in lines[2:-1]}
    assert starts == {lines[0].index("copy_in start")}, "what goes on stands in its column"


def test_a_table_of_many_steps_makes_only_the_rows_that_it_shows(monkeypatch):
    schedule, made, cell = pl.record(rolled, 10_000), [], pl.Schedule.cell
    monkeypatch.setattr(pl.Schedule, "cell", lambda self, number: made.append(number) or cell(self, number))
    lines = str(schedule).splitlines()
    assert len(lines) == 1 + 12 + 1 + 4 and len(made) < 100
    whole = pl.record(rolled, 40).table(fold=None).splitlines()
    assert [line.split() for line in lines[1:5]] == [line.split() for line in whole[1:5]]


@given(pipelines())
def test_one_event_is_the_same_alone_as_among_all(case):
    events = record(*case).events
    alone = [events[i] for i in range(-len(events), len(events))]  # before anybody has asked for all
    assert alone == [*events, *events]
    with pytest.raises(IndexError):
        record(*case).events[len(events)]


@pytest.mark.parametrize("ask", [pl.Schedule.operand, pl.Schedule.copies, pl.Schedule.blocks, pl.plot_slots])
def test_an_operand_that_there_is_not_is_told_with_those_there_are(ask):
    with pytest.raises(SpecError, match=r"has no operand 'z'. It has X, Y\."):
        ask(pl.record(loops.rolled, 3), "z")
