"""The command that makes a result again, as a person would type it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["repeat_command"]


def repeat_command(command: str, sources: Sequence[str], options: Mapping[str, Any]) -> str:
    """A command line with those options that are set.

    Parameters
    ----------
    sources
        What comes before the options: files and folders.
    options
        Names without dashes -> values: a list is given once for every entry, a mapping as settings,
        True as a bare name; what is empty, None or False is left out.

    Examples
    --------
    >>> repeat_command("fit", ["a b.csv"], {"target": "y", "drop": ["a", "b"], "set": {"n": 3}})
    "sigmax fit 'a b.csv' --target y --drop a --drop b --set n=3"
    >>> repeat_command("fit", ["-"], {"target": "--x", "no-refit": True, "preset": None})
    'sigmax fit - --target=--x --no-refit'
    """
    files = [f"./{one}" if one.startswith("-") and one != "-" else one for one in sources]
    words = ["sigmax", command, *files]
    for name, value in options.items():
        if value is None or value is False or value == "" or value == [] or value == ():
            continue
        if value is True:
            words.append(f"--{name}")
            continue
        if isinstance(value, Mapping):
            value = [f"{key}={setting_text(one)}" for key, one in value.items()]
        for one in value if isinstance(value, list | tuple) else [value]:
            text = str(one)
            words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return shlex.join(words)


def setting_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
