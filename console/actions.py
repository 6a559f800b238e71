"""Every action of the console, as data: keys, footer, help, palette, read-only mode and docs/keys.md come from here."""

from dataclasses import dataclass

from schemas.rules.permissions import Permission

LISTS = ("groups", "queue", "nodes", "mesh", "alerts")
ON_GROUPS = ("groups", "queue", "alerts")  # where the cursor may be on a group
OF_GROUP = ("detail", "log", "timeline", "curve")
VIEWS = (*LISTS, *OF_GROUP)
ROWS = ("groups", "queue")  # lists whose rows are groups
SCROLLED = (*LISTS, "detail", "log", "timeline", "help")

SCOPES: dict[str, str] = {
    "groups": "Groups",
    "queue": "Queue",
    "nodes": "Nodes",
    "mesh": "Mesh",
    "alerts": "Alerts",
    "detail": "Group",
    "log": "Log",
    "timeline": "Rank timeline",
    "curve": "Curves",
    "help": "Help",
    "confirm": "Confirmation",
    "editor": "Clone editor",
}


@dataclass(frozen=True, slots=True)
class Action:
    """name: `do_<name>` of the screens in `scopes`. keys: characters, or Textual's names of keys that have none.
    label: in the footer, "" = not there. mutating: changes the mesh, so it is absent in read-only mode, and refused to
    a key without the permission that it needs.
    word: what is typed behind `:`, "" = the name."""

    name: str
    keys: tuple[str, ...]
    label: str
    help: str
    scopes: tuple[str, ...]
    mutating: bool = False
    needs: Permission = Permission.WRITE_GROUPS
    word: str = ""


ACTIONS: tuple[Action, ...] = (
    Action("open", ("enter",), "open", "open what the cursor is on", ("groups", "queue", "nodes", "alerts")),
    Action(
        "detail",
        ("d",),
        "detail",
        "configuration, ranks, events, and the failure explained",
        (*ON_GROUPS, "log", "timeline", "curve"),
    ),
    Action("logs", ("l",), "logs", "the log, following it", (*ON_GROUPS, "detail", "timeline", "curve")),
    Action("timeline", ("t",), "timeline", "what each rank did when", (*ON_GROUPS, "detail", "log", "curve")),
    Action("curves", ("m",), "curves", "the loss and other scalars", (*ON_GROUPS, "detail", "log", "timeline")),
    Action(
        "stop",
        ("s",),
        "stop",
        "stop the group, or all marked ones; asks first",
        (*ON_GROUPS, *OF_GROUP),
        mutating=True,
    ),
    Action(
        "pause",
        ("P",),
        "pause",
        "let the group, or all marked ones, save and give their cards back; asks first",
        (*ROWS, *OF_GROUP),
        mutating=True,
    ),
    Action(
        "resume",
        ("R",),
        "resume",
        "put the paused group, or all marked ones, back into the queue; asks first",
        (*ROWS, *OF_GROUP),
        mutating=True,
    ),
    Action("clone", ("c",), "clone", "edit a copy of the document and submit it", (*ROWS, "detail"), mutating=True),
    Action(
        "resubmit",
        ("r",),
        "resubmit",
        "submit the same document once more; asks first",
        (*ON_GROUPS, "detail"),
        mutating=True,
    ),
    Action("mark", ("space",), "mark", "mark the row and go on to the next", ROWS),
    Action("mark_all", ("*",), "", "mark every row that the filter shows", ROWS),
    Action("clear_marks", ("\\",), "", "take all marks away", ROWS),
    Action(
        "filter",
        ("/",),
        "filter",
        "show rows that hold these words; !word leaves out, status=failed, user=lin, gpu>8",
        LISTS,
    ),
    Action("sort_right", (">",), "", "sort by the next column", ("groups", "nodes")),
    Action("sort_left", ("<",), "", "sort by the column before", ("groups", "nodes")),
    Action("sort_turn", ("o",), "", "turn the order round", ("groups", "nodes")),
    Action("problems", ("z",), "problems", "only rows that need a hand", ("groups", "nodes")),
    Action("pane", ("i",), "", "show or hide the pane below the list", ("groups",)),
    Action("search", ("/",), "search", "find text in the log", ("log",)),
    Action("next_match", ("n",), "next", "next match", ("log",)),
    Action("previous_match", ("N",), "", "match before", ("log",)),
    Action("only_matches", ("|",), "only", "only lines that match, or all again", ("log",)),
    Action("next_error", ("e",), "error", "next line that looks like an error", ("log",)),
    Action("follow", ("f",), "follow", "follow the end; scrolling up pauses it", ("log",)),
    Action("next_rank", ("]", "tab"), "rank", "the next rank alone", ("log",)),
    Action("previous_rank", ("[", "shift+tab"), "", "the rank before alone", ("log",)),
    Action("all_ranks", ("a",), "all ranks", "all ranks together", ("log",)),
    Action(
        "previous_attempt", ("p",), "attempt", "the attempt before this one; after the first the newest again", ("log",)
    ),
    Action("times", ("T",), "", "show or hide times", ("log",)),
    Action("wrap", ("w",), "wrap", "break long lines, or cut them", ("log",)),
    Action(
        "copy",
        ("y",),
        "copy id",
        "copy the id to the clipboard (OSC 52: tmux needs set-clipboard on)",
        (*ROWS, "detail", "log", "timeline"),
    ),
    Action("zoom_in", ("+", "="), "zoom", "a shorter stretch of time", ("timeline",)),
    Action("zoom_out", ("-",), "", "a longer stretch of time", ("timeline",)),
    Action("whole", ("0",), "whole", "everything from the beginning to now", ("timeline", "curve")),
    Action("left", ("left", "h"), "", "move left", ("timeline", "curve")),
    Action("right", ("right",), "", "move right", ("timeline", "curve")),
    Action("next_tag", ("]", "tab"), "tag", "the next curve", ("curve",)),
    Action("previous_tag", ("[", "shift+tab"), "", "the curve before", ("curve",)),
    Action("log_axis", ("y",), "log axis", "logarithmic values, or linear", ("curve",)),
    Action("tail", ("z",), "tail", "only the last tenth of the run", ("curve",)),
    Action("glyphs", ("b",), "glyphs", "draw with braille, blocks or ASCII", ("curve",)),
    Action("heat", ("tab",), "map", "heat map, or list", ("nodes",)),
    Action(
        "cordon",
        ("x",),
        "cordon",
        "keep new groups away from the node, or let them in again; asks first",
        ("nodes",),
        mutating=True,
        needs=Permission.OPERATE,
    ),
    Action(
        "drain",
        ("D",),
        "drain",
        "move the groups of the node elsewhere with their checkpoints; asks first",
        ("nodes",),
        mutating=True,
        needs=Permission.OPERATE,
    ),
    Action("down", ("j", "down"), "", "down", SCROLLED),
    Action("up", ("k", "up"), "", "up", SCROLLED),
    Action("page_down", ("pagedown", "ctrl+f"), "", "a page down", SCROLLED),
    Action("page_up", ("pageup", "ctrl+b"), "", "a page up", SCROLLED),
    Action("top", ("g", "home"), "", "to the beginning", SCROLLED),
    Action("bottom", ("G", "end"), "", "to the end", SCROLLED),
    Action("view_groups", ("1",), "", "groups", VIEWS, word="groups"),
    Action("view_queue", ("2",), "", "the queue: who waits, for what, and why", VIEWS, word="queue"),
    Action("view_nodes", ("3",), "", "nodes and their cards", VIEWS, word="nodes"),
    Action("view_mesh", ("4",), "", "voters, leader, log", VIEWS, word="mesh"),
    Action("view_alerts", ("5",), "", "what needs a hand", VIEWS, word="alerts"),
    Action("command", (":",), "view", "go to a view or do anything by its name", VIEWS),
    Action("help", ("?",), "help", "keys that work here", VIEWS),
    Action("redraw", ("ctrl+l",), "", "paint the whole screen again", VIEWS),
    Action("suspend", ("ctrl+z",), "", "back to the shell; fg returns", VIEWS),
    Action("back", ("escape",), "back", "one step back: filter, marks, screen", (*VIEWS, "help")),
    Action("leave", ("q",), "", "leave this screen, at the first one the console", (*VIEWS, "help")),
    Action("quit", ("ctrl+c", "ctrl+q"), "", "leave the console", (*VIEWS, "help", "confirm", "editor")),
    Action("confirm_yes", ("y",), "yes", "do it", ("confirm",), mutating=True),
    Action("confirm_later", ("a",), "later", "do it after the next checkpoint", ("confirm",), mutating=True),
    Action("confirm_no", ("n", "escape", "q"), "no", "do nothing", ("confirm",)),
    Action("confirm_next", ("tab", "right"), "next button", "the next button", ("confirm",)),
    Action("confirm_previous", ("shift+tab", "left"), "", "the button before", ("confirm",)),
    Action("confirm_press", ("enter",), "press", "what the button says; the first is Cancel", ("confirm",)),
    Action("editor_submit", ("ctrl+s", "f2"), "submit", "submit the document", ("editor",), mutating=True),
    Action("editor_leave", ("escape",), "leave", "leave without submitting", ("editor",)),
)

KEY_NAMES = {
    "space": "space",
    "enter": "enter",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
}


def key_name(key: str) -> str:
    return KEY_NAMES.get(key, key)


def actions_of(scope: str, read_only: bool = False) -> list[Action]:
    return [action for action in ACTIONS if scope in action.scopes and not (read_only and action.mutating)]
