"""Chapter 8: the target of its exercise is out of reach for most blocks, and in reach with two slots as with three."""
from autograder.checks.chapter8 import TARGET, product_timeline


def test_the_target_takes_large_tiles_and_enough_slots():
    blocks = [(bm, bn, bk, depth) for bm in (256, 512, 1024) for bn in (256, 512, 1024) for bk in (512, 1024, 2048)
              for depth in (2, 3)]
    timelines = {choice: product_timeline(*choice) for choice in blocks}
    met = {choice for choice, t in timelines.items() if t.total <= TARGET * 1e-6 and not t.hazards}
    assert met == {(512, 512, 1024, 3), (512, 512, 2048, 3), (512, 1024, 1024, 3), (1024, 512, 1024, 3),
                   (512, 1024, 2048, 2), (1024, 512, 2048, 2)}
