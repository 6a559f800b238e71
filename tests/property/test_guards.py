"""No command and no document crashes the guards; the order of keys says nothing; what is refused stays refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import HeteroFlowError
from schemas.rules.guards import command_findings
from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group, encode_document
from tests.property.test_task_group import documents, shuffled
from tests.unit.guards.rows import document_of, every_row

ROWS = [row for _, row in every_row()]
COMMANDS = [str(row["command"]) for row in ROWS if isinstance(row.get("command"), str)]
pieces = st.sampled_from(
    [
        *" \t\n;&|()<>{}\"'\\$`#=!-2",
        *"&& || ${ $(( $( [[ ]] torchrun --nnodes= fi done esac env eval export A= $NODE_RANK t.py".split(),
        *(f"{word} " for word in "if then do env -i sudo unset deepspeed function bash -c python -m nohup 2>".split()),
        *(
            "exit ",
            "wait ",
            "return ",
            "rc=",
            "²",
            "٣",
            "9" * 4301,
            "$(",
            "kill ",
            "sleep infinity ",
            "while true; do ",
            "${X:-",
            "${X:=",
            "${P:-} ",
            ": ",
        ),
        *("for x in ", "case x in ", "accelerate launch ", "mpirun -np ", "|| true", "<<E\n", "\r\n", "\0"),
        *("\U000f0000", "\U000f0001"),
    ]
)
soups = st.lists(pieces, max_size=30).map("".join) | st.text(max_size=80)
frameworks = st.sampled_from(["ddp", "fsdp", "deepspeed", "megatron", "tensorflow", "paddle", "jax", "", "?"])
parameters = st.dictionaries(
    st.sampled_from(
        [
            "tp",
            "pp",
            "cp",
            "ep",
            "zero_stage",
            "precision",
            "fp16",
            "bf16",
            "global_batch_size",
            "micro_batch_size",
            "lr",
        ]
    ),
    st.sampled_from(["0", "1", "2", "3", "8", "x", "2.0", "true", "bf16", "9" * 30, ""]),
    max_size=6,
)
shapes = st.fixed_dictionaries({}, optional={"n_nodes": st.integers(1, 5), "per_node_gpu": st.integers(1, 9)})


@st.composite
def cut_rows(draw):
    """A row of the table, with a piece of it cut out or put in."""
    command = draw(st.sampled_from(COMMANDS))
    at, end = sorted((draw(st.integers(0, len(command))), draw(st.integers(0, len(command)))))
    return command[:at] + draw(pieces) + command[end:]


@pytest.mark.attack(39)
@settings(max_examples=600, deadline=None)
@given(
    soups | cut_rows() | st.lists(soups, min_size=1, max_size=6),
    frameworks,
    shapes,
    parameters,
    st.sampled_from([None, "torchrun", "script"]),
)
def test_no_command_crashes_the_guards(command, framework, shape, hyper_params, launcher):
    training = {**shape, "hyper_params": hyper_params, **({"launcher": launcher} if launcher else {})}
    errors, warnings = command_findings(training, {"command": command, "env": {"A": "b c"}}, framework)
    for finding in [*errors, *warnings]:
        assert finding.message.isprintable()
        json.dumps(finding.to_dict())
    assert command_findings(training, {"env": {"A": "b c"}, "command": command}, framework) == (errors, warnings)


NUMBERED = (
    *(
        "torchrun t.py; exit {}",
        "rc={}; torchrun t.py; exit $rc",
        "torchrun t.py & wait {}",
        "torchrun t.py || exit {}",
    ),
    *("f() {{ torchrun t.py; return {}; }}; f", "torchrun t.py; [ $? -eq {} ]", "torchrun t.py & wait %{}"),
    *("set -- a; shift {}; torchrun t.py", "torchrun --nnodes=$(({} + 1)) t.py", "X={}; torchrun --nnodes=$((X)) t.py"),
    *(
        "torchrun --nnodes={} t.py",
        "torchrun --nnodes={}:{} t.py",
        "mpirun -np {} t : -np {} t",
        "timeout {} torchrun t.py",
    ),
    *("deepspeed --include localhost:{} t.py", "torchrun t.py --num-layers {}", "torchrun --rdzv_endpoint=a:{} t.py"),
)


@pytest.mark.attack(39)
@pytest.mark.parametrize("number", ("9" * 4301, "-" + "9" * 4301, "²", "٣", "1e999", "256"), ids=lambda said: said[:6])
@pytest.mark.parametrize("command", NUMBERED)
def test_no_number_crashes_the_guards(command, number):
    """Python takes `²` for a digit and no number of it, and no number of more than 4300 digits."""
    for framework in ("ddp", "deepspeed", "megatron"):
        check_task_group(
            document_of({"command": command.format(*[number] * command.count("{}")), "framework": framework})
        )


@pytest.mark.attack(39)
@settings(max_examples=25, deadline=None)
@given(st.lists(cut_rows() | soups, min_size=1, max_size=5), st.sampled_from(["; ", "\n", " && ", " | ", " "]))
def test_the_longest_command_does_not_either(parts, between):
    command = (between.join(parts) + between) * (64 * 1024 // len(between.join(parts) + between))
    errors, warnings = command_findings({"n_nodes": 2, "per_node_gpu": 4}, {"command": command}, "ddp")
    assert len(errors) + len(warnings) < 4096


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ROWS), st.randoms(use_true_random=False))
def test_findings_do_not_depend_on_the_order_of_keys(row, random):
    document = document_of(row)
    assert check_task_group(shuffled(document, random)) == check_task_group(document)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ROWS).map(document_of) | documents)
def test_a_refused_document_stays_refused_when_it_is_encoded_again(document):
    first = check_task_group(document)
    try:
        again = parse_strict_json(encode_document(document))
    except (HeteroFlowError, ValueError, TypeError, RecursionError):
        return  # what cannot be sent cannot be accepted either
    second = check_task_group(again)
    if first.errors:
        assert second.errors
    else:
        assert second == first
        assert check_task_group(first.document).document == first.document
