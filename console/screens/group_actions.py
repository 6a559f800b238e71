"""What can be done with a group, wherever one is on the screen."""

from typing import TYPE_CHECKING

from console.cli.request import new_request_id
from console.core import line
from console.core.confirm_text import pause_question, resubmit_question, resume_question, stop_question
from console.screens.view import ViewScreen
from console.store.session import Outcome
from schemas.states import PAUSED, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from console.core.confirm_text import Question
    from console.store.rows import Group

    Asked = Callable[[Sequence[Group], int, int, int], Question]

# While it is asked, and what is said when all were taken: of several, and of one.
_WORDS = {
    "stop": ("stopping", "ordered to stop", "is stopping"),
    "pause": ("pausing", "ordered to pause", "is pausing"),
    "resume": ("resuming", "wait again", "waits again at its old place"),
    "stop-after-checkpoint": ("asking", "stop after their next checkpoint", "stops after its next checkpoint"),
    "resubmit": ("submitting again", "", ""),
}


def takes(group: "Group", what: str) -> bool:
    """Whether an action can do anything to a group in its state."""
    if what == "pause":
        return group.status == RUNNING
    if what == "resume":
        return group.status == PAUSED
    return group.terminal == (what == "resubmit") if what in ("stop", "resubmit") else True


def culprit(group: "Group") -> int | None:
    """The rank that ended a failed group of several, whose log is read first; None: all of them."""
    return group.failed_rank if group.status == "failed" and (group.n_nodes or 1) > 1 else None


class GroupActions(ViewScreen):
    """`target` is the group an action is about; `targets` those of an action on many."""

    def target(self) -> "Group | None":
        raise NotImplementedError

    def targets(self) -> "list[Group]":
        group = self.target()
        return [group] if group is not None else []

    def subject(self) -> str | None:
        """The id of the group whose other screens can be opened."""
        group = self.target()
        return group.id if group is not None else None

    def done_with_marks(self) -> None:
        """An action on the marked rows was ordered."""

    # Screens of the group

    def do_open(self) -> None:
        self.do_detail()

    def do_detail(self) -> None:
        from console.screens.detail import DetailScreen

        if (group_id := self.subject()) is not None:
            self.console.show_of_group(DetailScreen(group_id))

    def do_logs(self) -> None:
        from console.screens.log import LogScreen

        if (group_id := self.subject()) is not None:
            group = self.target()
            self.console.show_of_group(LogScreen(group_id, culprit(group) if group is not None else None))

    def do_timeline(self) -> None:
        from console.screens.timeline import TimelineScreen

        if (group_id := self.subject()) is not None:
            self.console.show_of_group(TimelineScreen(group_id))

    def do_curves(self) -> None:
        from console.screens.curve import CurveScreen

        if (group_id := self.subject()) is not None:
            self.console.show_of_group(CurveScreen(group_id))

    def do_copy(self) -> None:
        if (group := self.target()) is not None:
            self.app.copy_to_clipboard(group.id)
            self.flash(f"{group.id} is in the clipboard, if this terminal takes OSC 52")

    # Changes

    def do_stop(self) -> None:
        from console.screens.confirm import room

        chosen = self.targets()
        groups = [group for group in chosen if not group.terminal]
        if not groups:
            self.flash("nothing to stop: it has ended" if chosen else "no group is chosen", line.WARN)
            return
        question = stop_question(groups, len(chosen) - len(groups), self.session.now_ms(), room(self.app.size.width))
        self._ask(question, groups, "stop")

    def do_pause(self) -> None:
        self._ask_those(pause_question, "pause", "running", "nothing to pause: only what runs has something to save")

    def do_resume(self) -> None:
        self._ask_those(resume_question, "resume", "paused", "nothing to resume: only paused groups go on")

    def _ask_those(self, question: "Asked", what: str, status: str, otherwise: str) -> None:
        from console.screens.confirm import room

        chosen = self.targets()
        groups = [group for group in chosen if group.status == status]
        if not groups:
            self.flash(otherwise if chosen else "no group is chosen", line.WARN)
            return
        others, now_ms, cells = len(chosen) - len(groups), self.session.now_ms(), room(self.app.size.width)
        self._ask(question(groups, others, now_ms, cells), groups, what)

    def do_resubmit(self) -> None:
        if (group := self.target()) is not None:
            if not group.terminal:
                self.flash(
                    f"{group.name} is {group.status}; resubmit is for groups that have ended, c clones any", line.WARN
                )
                return
            self._ask(resubmit_question(group), [group], "resubmit")

    def do_clone(self) -> None:
        from console.screens.editor import open_editor

        if (group := self.target()) is not None:
            self.session.in_background(open_editor(self.console, group.id))

    def _ask(self, question: "object", groups: "list[Group]", what: str) -> None:
        from console.core.confirm_text import Question
        from console.screens.confirm import ConfirmScreen

        assert isinstance(question, Question)
        # One id for each group, made when it is asked: whatever is lost on the way, each action is done once.
        ordered = [(group.id, group.name, new_request_id()) for group in groups]

        def answered(answer: str | None) -> None:
            if answer:
                self.done_with_marks()
                later = answer == question.later
                self.session.in_background(self._carry_out("stop-after-checkpoint" if later else what, ordered))

        self.app.push_screen(ConfirmScreen(question), answered)

    async def _carry_out(self, what: str, ordered: list[tuple[str, str, str]]) -> None:
        verb, done_many, done_one = _WORDS[what]
        failed: list[tuple[str, Outcome]] = []
        for at, (group_id, name, request_id) in enumerate(ordered, 1):
            self.console.say(f"{verb} {at}/{len(ordered)}: {name}", line.BUSY)
            outcome = await self.session.order_group(group_id, what, request_id)
            if not outcome.ok:
                failed.append((name, outcome))
            elif what == "resubmit":
                self.console.say(f"submitted as {outcome.group_id}", line.GOOD)
        if failed:
            name, outcome = failed[0]
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            self.console.say(f"{name}: {outcome.text}{more}", line.BAD if outcome.sure else line.WARN)
        elif done_one:
            self.console.say(
                f"{len(ordered)} {done_many}" if len(ordered) > 1 else f"{ordered[0][1]} {done_one}", line.GOOD
            )
