"""naming: exercises that ask for the name of what is wrong, one for each of a few programs."""
from ..exercise import Wrong
from ..handle import Handle


def insist_names(answer: Handle, right: dict[str, str], about: dict[str, str], what: str) -> None:
    """Raises Wrong unless the answer is a dict from each key of `right` to its name.

    `about`: name -> what to look at, said where another name was given; its keys are the names to choose from.
    `what`: what has the names, such as "loop".
    """
    given = answer.value()
    if not isinstance(given, dict):
        example = ", ".join(f'"{key}": "fine"' for key in list(right)[:2])
        raise Wrong(f"The answer should be a dict, such as {{{example}, …}}.", got=given)
    names = {str(k).lower().strip().removeprefix(what).strip(" _"): " ".join(str(v).lower().split())
             for k, v in given.items()}
    for key in right:
        if key not in names:
            first, *_, last = right
            raise Wrong(f"{what.capitalize()} {key} has no name yet.", got=given,
                        nudge=f'Add "{key}": "…" to the dict; its keys are "{first}" to "{last}".')
        if names[key] not in about:
            raise Wrong(f"{given.get(key, names[key])!r} is none of the {_word(len(about))} names.",
                        case=f"{what} {key}", nudge="Take one of: " + ", ".join(f'"{name}"' for name in about) + ".")
    for key, name in right.items():
        if names[key] != name:
            raise Wrong(f"{what.capitalize()} {key} has another name.", case=f"{what} {key}", got=names[key],
                        nudge=about[name])


def _word(n: int) -> str:
    return {3: "three", 4: "four", 5: "five", 6: "six"}.get(n, str(n))
