"""What is known of the variables at one place of a command."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Environment:
    """values: None where a variable is known to be unset. closed: nothing else is set either (`env -i`, `sudo`).
    assigned: what the line itself has set."""

    values: dict[str, str | None]
    closed: bool = False
    assigned: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Environment":
        return Environment(dict(self.values), self.closed, dict(self.assigned))

    def assign(self, name: str, value: str) -> None:
        self.values[name] = self.assigned[name] = value

    def unset(self, name: str) -> None:
        self.values[name] = None
        self.assigned.pop(name, None)

    def close(self) -> None:
        self.values.clear()
        self.assigned.clear()
        self.closed = True

    def value(self, name: str) -> str | None:
        """ "" where it is unset, None where it cannot be known."""
        if name in self.values:
            return self.values[name] or ""
        return "" if self.closed else None

    def has(self, name: str) -> bool:
        """Whether a variable that the platform sets is still there."""
        return self.values[name] is not None if name in self.values else not self.closed
