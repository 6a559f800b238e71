"""Scripts by which shells complete `heteroflow`: its verbs, and of each verb the options and words that it knows."""

from collections.abc import Mapping, Sequence

SHELLS = ("bash", "zsh", "fish")
Words = Mapping[str, Sequence[str]]


def script(shell: str, verbs: Words) -> str:
    """verbs: name -> what may follow it; "" -> what may stand before a verb."""
    return _fish(verbs) if shell == "fish" else _bash(verbs, zsh=shell == "zsh")


def _bash(verbs: Words, zsh: bool) -> str:
    names = [name for name in verbs if name]
    cases = [f"    {name or chr(34) * 2}) words='{' '.join(words)}' ;;" for name, words in verbs.items()]
    lines = [
        *(["autoload -U +X compinit bashcompinit && compinit && bashcompinit"] if zsh else []),
        "_heteroflow() {",
        "  local word verb='' words='' current=${COMP_WORDS[COMP_CWORD]}",
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        f"    case ' {' '.join(names)} ' in *\" $word \"*) verb=$word; break ;; esac",
        "  done",
        '  case "$verb" in',
        *cases,
        "  esac",
        '  [ -n "$verb" ] || [ "${current#-}" != "$current" ] || words=\'' + " ".join(names) + "'",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _heteroflow heteroflow",
    ]
    return "\n".join(lines) + "\n"


def _fish(verbs: Words) -> str:
    names = " ".join(name for name in verbs if name)
    lines = [f"complete -c heteroflow -n __fish_use_subcommand -a '{names}'"]
    for name, words in verbs.items():
        where = f"'__fish_seen_subcommand_from {name}'" if name else "__fish_use_subcommand"
        lines.append(f"complete -c heteroflow -n {where} -a '{' '.join(words)}'")
    return "\n".join(lines) + "\n"
