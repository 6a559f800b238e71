"""No document crashes the checker; what it accepts it accepts again unchanged; the order of keys says nothing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.as_written_yaml import parse_yaml
from schemas.errors import HeteroFlowError
from schemas.lexemes import Number, Plain
from schemas.rules.environment import PLATFORM_NAMES, rank_environment
from schemas.strict_json import parse_strict_json
from schemas.task_group import check_task_group, encode_document, parent_of, with_inherited
from schemas.task_group.fields import SECTIONS

NAMES = [name for section in SECTIONS.values() for name in section.fields] + ["training", "task"]
words = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["ddp", "training", "/data/x", "2", "H100", "a"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | words
    | st.sampled_from(
        [Number("2"), Number("1e400"), Number("-0"), Plain("no"), Plain("1e-4"), Plain("2"), Plain("true")]
    )
)
keys = st.sampled_from(NAMES) | words | st.integers() | st.none()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5), max_leaves=12
)
sections = st.dictionaries(keys, values, max_size=10)
documents = values | st.fixed_dictionaries(
    {}, optional={"training": sections, "task": sections, "name": values, "labels": values}
)

counts = st.integers(1, 64)
texts = st.text(st.characters(min_codepoint=0x20, exclude_categories=["C", "Z"]), min_size=1, max_size=20)
hyper_keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,10}", fullmatch=True)


@st.composite
def right_documents(draw):
    cards = draw(counts)
    training = {
        "framework": draw(st.sampled_from(["ddp", "fsdp"])),
        "n_nodes": draw(st.integers(1, 10_000)),
        "per_node_gpu": cards,
        "hyper_params": draw(
            st.dictionaries(hyper_keys, st.text(max_size=20).filter(lambda t: "\0" not in t), max_size=4)
        ),
    }
    optional = {
        "checkpoint_path": "/data/" + draw(st.from_regex(r"[a-z/.]{1,10}[a-z]", fullmatch=True)),
        "gpu_type": draw(st.sampled_from(["H100", ["H100", "A100"]])),
        "seed": draw(st.integers() | texts),
        "checkpoint_interval": draw(st.integers(1, 10_000)),
    }
    training |= {key: value for key, value in optional.items() if draw(st.booleans())}
    task = {"command": draw(texts | st.lists(texts, min_size=1, max_size=4)), "gpu_required": cards}
    return {"name": draw(texts), "task_type": "training", "training": training, "task": task}


def shuffled(value, random):
    if isinstance(value, dict):
        items = list(value.items())
        random.shuffle(items)
        return {key: shuffled(item, random) for key, item in items}
    return [shuffled(item, random) for item in value] if isinstance(value, list) else value


@pytest.mark.attack(39)
@settings(max_examples=400, deadline=None)
@given(documents)
def test_nothing_crashes_the_checker_and_every_refusal_can_be_sent(document):
    checked = check_task_group(document)
    assert (checked.document is None) == bool(checked.errors)
    for finding in [*checked.errors, *checked.warnings]:
        assert finding.message
        json.dumps(finding.to_dict(), ensure_ascii=False).encode()


@settings(max_examples=200, deadline=None)
@given(documents, st.randoms(use_true_random=False))
def test_findings_do_not_depend_on_the_order_of_keys(document, random):
    assert check_task_group(shuffled(document, random)) == check_task_group(document)


@settings(max_examples=200, deadline=None)
@given(right_documents())
def test_what_is_accepted_is_accepted_again_unchanged_on_every_way(document):
    first = check_task_group(document)
    if first.document is None:
        # A command of any text may be one that the guards know to fail.
        others = [finding for finding in first.errors if finding.path != "task.command"]
        assert all(finding.code in ("hyper_param_collision", "invalid_field") for finding in others)
        return
    assert check_task_group(first.document).document == first.document
    assert check_task_group(parse_strict_json(encode_document(first.document))).document == first.document
    assert check_task_group(parse_strict_json(encode_document(document))).document == first.document


@settings(max_examples=200, deadline=None)
@given(documents, right_documents())
def test_no_document_crashes_the_search_for_its_parent(document, parent):
    accepted = check_task_group(parent).document
    if isinstance(document, dict) and parent_of(document) is not None and accepted is not None:
        check_task_group(with_inherited(document, accepted))


@settings(max_examples=200, deadline=None)
@given(right_documents(), right_documents(), st.data())
def test_what_a_child_leaves_out_is_its_parents_byte_for_byte(parent, other, data):
    """other: where the fields that the child writes itself come from."""
    theirs = check_task_group(parent).document
    if theirs is None:
        return
    own = data.draw(st.sets(st.sampled_from(sorted(other["training"].keys() - {"n_nodes", "per_node_gpu"}))))
    training = {name: other["training"][name] for name in own}
    training |= {"parent_checkpoint": "tg-01kb89t3f89j6ct3adhq@7", "checkpoint_path": "/data/child"}
    child = {"name": "child", "task_type": "training", "training": training}
    checked = check_task_group(with_inherited(child, theirs))
    if checked.document is None:
        # Keys of the two may become one variable.
        assert {finding.code for finding in checked.errors} <= {"hyper_param_collision", "invalid_field"}
        return
    merged, mine = checked.document["training"], training.get("hyper_params", {})
    assert merged["hyper_params"] == {**theirs["training"]["hyper_params"], **mine}
    for name in theirs["training"].keys() - training.keys():
        assert merged[name] == theirs["training"][name]
    assert merged["checkpoint_path"] == "/data/child" and checked.document["task"] == theirs["task"]
    assert check_task_group(with_inherited(checked.document, theirs)).document == checked.document


@pytest.mark.attack(18, 19)
@settings(max_examples=100, deadline=None)
@given(right_documents(), st.integers(0, 9))
def test_a_rank_never_sees_more_than_it_should(document, rank):
    checked = check_task_group(document)
    if checked.document is None:
        return
    found = rank_environment(checked.document, "tg-x", 1, rank, 10, 1, "a", 20_000, "/c", "/d", None, ["GPU-1"])
    assert not {"RANK", "LOCAL_RANK"} & set(found)
    generated = [name for name in found if not name.startswith("HETEROFLOW_HP_")]
    assert set(generated) <= set(PLATFORM_NAMES)
    assert len(found) - len(generated) == len(checked.document["training"]["hyper_params"])


@pytest.mark.attack(39)
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_readers_answer_any_bytes_with_a_value_or_a_problem(body):
    for read in (parse_strict_json, parse_yaml):
        try:
            check_task_group(read(body))
        except HeteroFlowError as error:
            assert error.problem.status in (400, 413)
            assert error.problem.message


@settings(max_examples=200, deadline=None)
@given(st.text("-:{}[]&*!|>'\"%@`#, \n\t?~<ab01", max_size=40))
def test_yaml_shaped_texts_too(text):
    try:
        check_task_group(parse_yaml(text.encode()))
    except HeteroFlowError as error:
        assert error.problem.hint
