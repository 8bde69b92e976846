"""naming: exercises that ask for the name of what is wrong, one for each of a few programs."""
import reprlib
from collections.abc import Sequence

from ..exercise import Wrong
from ..judge.handle import Handle, kind_of, word

BRIEF = reprlib.Repr()
BRIEF.maxstring = BRIEF.maxother = 80


def insist_names(answer: Handle, right: dict[str, str], about: dict[str, str], what: str,
                 noun: str = "name", choice: Sequence[str] = ()) -> None:
    """Raises Wrong unless the answer is a dict from each key of `right` to its name.

    `about`: for a name, or for a key, what to look at where another name was given. `choice`: the names to choose
    from; without it, those in `about`. `what` has the names, such as "loop", and they are called a `noun`.
    """
    given, choice = answer.value(), choice or list(about)
    if not isinstance(given, dict):
        example = ", ".join(f'"{key}": "…"' for key in list(right)[:2])
        raise Wrong(f"The answer should be a dict, such as {{{example}, …}}.", got=kind_of(given))
    said = {str(k).lower().strip().removeprefix(what).strip(" _"): v for k, v in given.items()}
    names = {key: word(v) for key, v in said.items()}
    for key in right:
        if key not in names:
            first, *_, last = right
            raise Wrong(f"{what.capitalize()} {key} has no {noun} yet.", got=given,
                        nudge=f'Add "{key}": "…" to the dict; its keys are "{first}" to "{last}".')
        if names[key] not in choice:
            raise Wrong(f"{BRIEF.repr(said[key])} is none of the {_word(len(choice))} {noun}s.", case=f"{what} {key}",
                        nudge="Take one of: " + ", ".join(f'"{name}"' for name in choice) + ".")
    for key, name in right.items():
        if names[key] != name:
            raise Wrong(f"{what.capitalize()} {key} has another {noun}.", case=f"{what} {key}", got=names[key],
                        nudge=about.get(key) or about[name])


def _word(n: int) -> str:
    return {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}.get(n, str(n))
