"""store: the results folder of `grade`. One file for each submission, in place as soon as its report is known.

    submissions/<key>.json    one Report; its key stands for all that it depends on (submissions.Parcel.key)
    results.json, .csv        the submissions of the last run, in order (report.write)
    run.json                  what that run was asked for, so that --resume can go on with it

A killed run leaves whole files or none. A report of a fault, or one that cannot be read, is not used again.
"""
import contextlib
import fcntl
import json
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..commandline import typed
from .grade import Report
from .report import VERSION, ResultsError, write_atomic, writing


class Store:
    """One results folder. It belongs to one run at a time; leave it with `close`. What writes raises WriteError."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.damaged: list[Path] = []
        with writing(folder):
            (folder / "submissions").mkdir(parents=True, exist_ok=True)
            self._lock = (folder / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise ResultsError(f"another run is writing to {folder}. Wait for it, or give --out another folder") \
                from None
        with writing(folder):
            for half in folder.rglob(".*.json-*"):  # left by a run that was killed while it wrote
                half.unlink()

    def close(self) -> None:
        self._lock.close()

    def path(self, key: str) -> Path:
        return self.folder / "submissions" / f"{key}.json"

    def save(self, key: str, report: Report) -> None:
        with writing(self.folder):
            write_atomic(self.path(key), json.dumps(report.to_plain(), ensure_ascii=False) + "\n")

    def forget(self, keys: Iterable[str]) -> None:
        """Throws away what is known under these keys."""
        with writing(self.folder):
            for key in keys:
                self.path(key).unlink(missing_ok=True)

    def load(self, key: str) -> Report | None:
        """What is known under a key; None if nothing is, or if it is damaged, which is noted."""
        try:
            return Report.from_plain(json.loads(self.path(key).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self.damaged.append(self.path(key))
            return None

    def reports(self, keys: Iterable[str]) -> "Reports":
        """The reports under these keys, in their order, each once."""
        return Reports(self, list(dict.fromkeys(keys)))

    def has(self, key: str) -> bool:
        """Whether a submission need not be graded again."""
        report = self.load(key)
        return report is not None and report.status != "fault"

    def note_run(self, asked: dict[str, Any]) -> str:
        """Notes that a run begins, and returns its name: results.json has it too, once that run has written it."""
        run, path = secrets.token_hex(8), self.folder / "run.json"
        self._run_before = path.read_text(encoding="utf-8") if path.is_file() else ""
        with writing(self.folder):
            text = json.dumps({"version": VERSION, "run": run, **asked}, indent=1)
            write_atomic(path, text + "\n")
        return run

    def take_back_run(self) -> None:
        """As if the run had not begun: it came to its end, and changed nothing."""
        with writing(self.folder):
            write_atomic(self.folder / "run.json", self._run_before)

    def last_run(self) -> dict[str, Any]:
        """What `note_run` was given last. Raises ResultsError."""
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            asked = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
            if asked.pop("version") == VERSION and "paths" in asked:
                asked.pop("run", "")
                return asked
        raise ResultsError(f"there is no run to go on with in {self.folder}. Name the submissions: "
                           f"{typed('grade', 'PATH...', '--out', self.folder)}")


class Reports:
    """Reports that are read from their files whenever they are gone through: thousands need no memory."""

    def __init__(self, store: Store, keys: list[str]):
        self._store, self._keys = store, keys

    def __iter__(self) -> Iterator[Report]:
        return (report for key in self._keys if (report := self._store.load(key)) is not None)
