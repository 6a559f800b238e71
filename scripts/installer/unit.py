"""The systemd unit of the agent: the guard is its main process, and stopping it stops no task."""

from scripts.installer.places import Places

_TEXT = """# Written by the installer; changes go into `systemctl edit heteroflow-agentd`.
[Unit]
Description=HeteroFlow Mesh agent
Wants=network-online.target
# Shares, engine and driver first: without them this host would refuse the tasks it is given. Absent ones do not hinder.
After=network-online.target remote-fs.target docker.service nvidia-persistenced.service time-sync.target
# A host that waits for the mesh tries for as long as it takes.
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
ExecStart={command}
# Only the guard is told to stop: it ends the agent, and the tasks run on under their shims until the next start adopts
# them. Killing the whole group would end the training of this host with every restart.
KillMode=process
TimeoutStopSec=30
Restart=always
RestartSec=2
# A setting that cannot be obeyed and a damaged log do not mend by themselves.
RestartPreventExitStatus=2 5
# The processes of tasks are kept in groups below this one.
Delegate=yes
# A task that is killed for its memory is that task's end, not the agent's.
OOMPolicy=continue
OOMScoreAdjust=-1000
# Tasks inherit these: registered memory of RDMA is locked, and loaders open many files.
LimitMEMLOCK=infinity
LimitNOFILE=1048576
TasksMax=infinity
# Taken from the agent and from all that it starts. No more than that on purpose: tasks are children of this unit, and
# ProtectClock, PrivateDevices or DevicePolicy take the cards from them, PrivateTmp and ProtectHome their files,
# SystemCallFilter, RestrictNamespaces and MemoryDenyWriteExecute break namespaces, debuggers and compiled kernels.
CapabilityBoundingSet=~CAP_SYS_BOOT CAP_SYS_MODULE CAP_SYS_TIME CAP_SYSLOG
CapabilityBoundingSet=~CAP_WAKE_ALARM CAP_AUDIT_CONTROL CAP_MAC_ADMIN CAP_MAC_OVERRIDE
KeyringMode=private
{privileges}
[Install]
WantedBy=multi-user.target
"""


def unit_text(places: Places, user: str) -> str:
    privileges = "" if user == "root" else "NoNewPrivileges=yes\n"
    return _TEXT.format(user=user, command=" ".join(map(_quoted, places.guard_command)), privileges=privileges)


def _quoted(word: str) -> str:
    """As systemd reads a command line: `%` and `$` are its own."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if any(letter in word for letter in " '\t") else word
