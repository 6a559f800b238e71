"""What was written is what every rank sees, on each way a document can take."""

import json

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from console.core.document_yaml import document_yaml
from schemas.as_written_yaml import parse_yaml
from schemas.rules.frameworks.placement import Placement
from schemas.rules.frameworks.rank import rank_start
from schemas.rules.hyper_params import ENVIRONMENT_MAX, variable_name
from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group, encode_document

keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,12}", fullmatch=True)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
# As they stand unquoted in a file: numbers in every spelling, and what YAML 1.1 would make something else of.
numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,8})(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
bare = numbers | st.sampled_from("no on yes off 0755 08 22:30 2026-01-01 1_000 1e-4 .5 +1 0x1f true NO a=b".split())
nasty = st.sampled_from(
    ["$HOME", "`id`", "$(touch x)", "a b'c\"d", "x\ny", "\\", "%s", "{}", " ", "", "\t", "é 😀", "--lr"]
)
commands = st.sampled_from(["torchrun t.py", ["torchrun", "t.py", "--name", "a b"]])


def written(hyper_params, command="torchrun t.py"):
    training = {"framework": "ddp", "n_nodes": 2, "per_node_gpu": 1, "hyper_params": hyper_params}
    task = {"command": command, "gpu_required": 1, "image": "r/x:1"}
    return {"name": "llama math", "task_type": "training", "training": training, "task": task}


def accepted(raw):
    checked = check_task_group(raw)
    assume(all(finding.code != "hyper_param_collision" for finding in checked.errors))
    assert checked.document is not None, checked.errors
    return checked.document


def seen(document, rank=1, host_paths=False):
    place = Placement("tg-x", 1, rank, 2, 1, "10.0.0.1", 20_000, files_dir="/heteroflow")
    return rank_start(document, place, host_paths, {})


def assert_delivered(document, values):
    start = seen(document)
    assert {name: start.env.get(variable_name(name)) for name in values} == values
    if values:
        text = start.env.get("HETEROFLOW_HYPER_PARAMS") or start.files["hyper_params.json"]
        assert json.loads(text) == values


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(keys, texts | nasty, max_size=5), commands)
def test_texts_through_json_yaml_clone_and_edit_with_every_form_of_command(values, command):
    raw = written(values, command)
    document = accepted(parse_strict_json(json.dumps(raw).encode()))
    clone = accepted(parse_strict_json(encode_document(parse_yaml(document_yaml(document).encode()))))
    edited = parse_yaml(document_yaml(clone).encode())
    edited["training"]["hyper_params"] = {**edited["training"].get("hyper_params", {}), "zz_new": "1e-4"}
    for each in (document, clone, accepted(parse_strict_json(encode_document(document)))):
        assert_delivered(each, values)
    if "zz_new" not in values:
        assert_delivered(accepted(edited), {**values, "zz_new": "1e-4"})
    start = seen(document)
    assert (start.shell or list(start.argv)) == command, "the command is never rewritten"


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(keys, bare, min_size=1, max_size=5))
def test_bare_scalars_of_a_yaml_file(values):
    lines = "".join(f"    {key}: {value}\n" for key, value in values.items())
    head = "name: a b\ntask_type: training\ntask: {command: t, gpu_required: 1}\ntraining:\n"
    text = f"{head}  framework: ddp\n  n_nodes: 1\n  per_node_gpu: 1\n  hyper_params:\n{lines}"
    document = accepted(parse_yaml(text.encode()))
    assert_delivered(document, values)
    assert_delivered(accepted(parse_strict_json(encode_document(parse_yaml(text.encode())))), values)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(keys, numbers, min_size=1, max_size=5))
def test_bare_numbers_of_a_json_body(values):
    pairs = ", ".join(f"{json.dumps(key)}: {value}" for key, value in values.items())
    body = json.dumps(written({})).replace('"hyper_params": {}', f'"hyper_params": {{{pairs}}}')
    assert_delivered(accepted(parse_strict_json(body.encode())), values)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 44), st.integers(1000, 4096), st.booleans())
def test_what_would_not_fit_into_the_environment_comes_in_a_file(count, size, host_paths):
    values = {f"k{at}": "x" * size for at in range(count)}
    document = accepted(written(values))
    start = seen(document, host_paths=host_paths)
    assert_delivered(document, values)
    ours = {name: text for name, text in start.env.items() if "HYPER_PARAMS" in name or "_HP_" in name}
    together = sum(len(name.encode()) + len(text.encode()) + 2 for name, text in ours.items())
    if "HETEROFLOW_HYPER_PARAMS_FILE" in start.env:
        assert start.env["HETEROFLOW_HYPER_PARAMS_FILE"] == "/heteroflow/hyper_params.json"
        assert "HETEROFLOW_HYPER_PARAMS" not in start.env and together > ENVIRONMENT_MAX // 3
    else:
        assert together <= ENVIRONMENT_MAX
    assert sum(len(text.encode()) for text in start.env.values()) < 512 * 1024, "far below what the kernel takes"
    assert max(len(text.encode()) for text in start.env.values()) < 128 * 1024
