"""python -m benchmarks [NAME ...]: run all benchmarks, or those named."""
import importlib
import pkgutil
import sys

import benchmarks

names = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_")]
chosen = sys.argv[1:] or names
if unknown := set(chosen) - set(names):
    sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
print(benchmarks.machine())
for name in chosen:
    print(f"\n== {name}")
    importlib.import_module(f"benchmarks.{name}").main()
