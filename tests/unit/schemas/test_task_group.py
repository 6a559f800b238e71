import pytest

from schemas.as_written_yaml import parse_yaml
from schemas.errors import InvalidInput
from schemas.rules.failure_classes import INFRASTRUCTURE
from schemas.strict_json import parse_strict_json
from schemas.task_group import accepted_task_group, check_task_group, encode_document
from tests.unit.schemas.documents import DELETED, GOOD, accepted, codes, errors_at, good


def test_the_normal_form_has_every_default_written_down():
    assert accepted(GOOD) == {
        "name": "llama-ft math",
        "task_type": "training",
        "priority": "normal",
        "on_isolation": "stop",
        "training": {
            "framework": "ddp",
            "n_nodes": 2,
            "per_node_gpu": 4,
            "world_size": 8,
            "checkpoint_path": "/data/ckpt/llama",
            "hyper_params": {"lr": "1e-4"},
        },
        "task": {"command": "torchrun t.py", "gpu_required": 4, "stop_grace_s": 60},
    }


def test_checking_the_normal_form_changes_nothing():
    document = accepted(good(training__gpu_type="H100", labels={"a": "1"}, task__env={"A": "b"}))
    assert accepted(document) == document
    assert accepted(parse_strict_json(encode_document(document))) == document


class TestUnknownFields:
    def test_all_of_them_in_one_answer_with_what_was_meant(self):
        document = parse_strict_json(
            b'{"training":{"framework":"ddp","num_nodes":2,"per_node_gpu":4,"checkpoint_path":"/data/c"},'
            b'"task":{"image":"i","command":"torchrun t.py","gpu_requred":4}}'
        )
        found = {finding.path: finding.message for finding in check_task_group(document).errors}
        assert "did you mean n_nodes" in found["training.num_nodes"]
        assert "did you mean gpu_required" in found["task.gpu_requred"]
        # What was meant by a misspelled name is not also called missing.
        assert set(found) == {"name", "task_type", "training.num_nodes", "task.gpu_requred"}

    @pytest.mark.parametrize(
        ("field", "where"),
        [
            ("image", "task.image"),
            ("command", "task.command"),
            ("gpu_required", "task.gpu_required"),
            ("hyper_params", "training.hyper_params"),
            ("n_nodes", "training.n_nodes"),
            ("framework", "training.framework"),
        ],
    )
    def test_a_field_at_the_wrong_level_is_told_where_it_belongs(self, field, where):
        (finding,) = errors_at(good(**{field: "x"}), field)
        assert finding.code == "misplaced_field"
        assert where in finding.hint

    def test_wrong_levels_inside_sections(self):
        assert "at the top level" in errors_at(good(training__priority="high"), "training.priority")[0].hint
        assert "task.image" in errors_at(good(training__image="i"), "training.image")[0].hint
        assert "training.n_nodes" in errors_at(good(task__n_nodes=2), "task.n_nodes")[0].hint

    @pytest.mark.parametrize(
        ("field", "use"),
        [
            ("compute", "training.n_nodes"),
            ("checkpoint", "training.checkpoint_interval"),
            ("hyperparameters", "training.hyper_params"),
            ("experiment", "top level"),
        ],
    )
    def test_spellings_of_other_systems_are_told_ours(self, field, use):
        (finding,) = errors_at(good(**{field: {"nodes": 2}}), field)
        assert use in finding.hint

    def test_a_foreign_file_is_told_once(self):
        found = check_task_group({f"k{at}": at for at in range(10_000)}).errors
        assert len(found) < 120
        assert any("more unknown fields" in finding.message for finding in found)

    @pytest.mark.parametrize("key", ["\ud800", "\x1b]0;x\x07", "\u202eeman", 7, None, ("a",), "n" * 100_000])
    def test_hostile_keys_are_refused_in_words_that_can_be_sent(self, key):
        found = check_task_group({**GOOD, key: 1}).errors
        assert len(found) == 1
        for part in (found[0].path, found[0].message, found[0].hint):
            part.encode()
            assert part.isprintable()
            assert len(part) < 1000


class TestTypes:
    @pytest.mark.parametrize(
        "value", [-1, 0, 10**12, 10**400, True, False, 2.0, "2", None, [2], {"a": 1}, float("nan"), b"2"]
    )
    @pytest.mark.parametrize("field", ["training__n_nodes", "training__per_node_gpu", "task__gpu_required"])
    def test_counts_are_whole_numbers_within_their_range(self, field, value):
        (finding, *_) = errors_at(good(**{field: value}), field.replace("__", "."))
        assert finding.code == "invalid_field"
        assert finding.hint

    @pytest.mark.parametrize(
        "text", ["-1", "0", "-0", "1000000000000", "2.0", "2e0", "true", '"2"', "null", "[2]", "9" * 5000]
    )
    def test_the_same_as_json(self, text):
        body = encode_document(GOOD).replace(b'"n_nodes":2', b'"n_nodes":' + text.encode())
        assert "training.n_nodes" in codes(parse_strict_json(body))

    @pytest.mark.parametrize("value", [12, 1.5, True, ["a"], {"a": "b"}, None])
    @pytest.mark.parametrize(
        "field", ["name", "notes", "training__checkpoint_path", "task__image", "training__framework"]
    )
    def test_texts_are_texts(self, field, value):
        assert codes(good(**{field: value}))[field.replace("__", ".")] == "invalid_field"

    def test_a_number_as_a_name_is_asked_for_in_quotes(self):
        (finding,) = errors_at(parse_strict_json(encode_document(GOOD).replace(b'"llama-ft math"', b"123")), "name")
        assert '"123"' in finding.hint

    @pytest.mark.parametrize("part", ["training", "task"])
    @pytest.mark.parametrize("value", [None, [], "x", 3])
    def test_sections_are_mappings(self, part, value):
        assert part in codes(good(**{part: value}))

    @pytest.mark.parametrize("value", [None, [], "x", 3, True])
    def test_the_document_is_a_mapping(self, value):
        assert [finding.code for finding in check_task_group(value).errors] == ["invalid_document"]


class TestNames:
    @pytest.mark.parametrize("name", ["训练-步态v2", "a/b", "-x", "A_B.c", "🚀", "name with space", "..", "n" * 128])
    def test_any_printable_name_is_taken(self, name):
        assert accepted(good(name=name))["name"] == name

    @pytest.mark.parametrize(
        "name",
        ["x\0y", "x\u202ey", "x\ny", "x\x1b[2J", "n" * 200, "", "   ", " x", "x ", "\ud800", "tg-01kb7b9q3vj5zqq0w3mn"],
    )
    def test_names_that_could_deceive_or_break_are_not(self, name):
        assert "name" in codes(good(name=name))


class TestRequired:
    @pytest.mark.parametrize(
        "field",
        "name task_type training task training__framework training__n_nodes training__per_node_gpu "
        "task__command task__gpu_required".split(),
    )
    def test_missing(self, field):
        assert codes(good(**{field: DELETED}))[field.replace("__", ".")] == "missing_field"

    @pytest.mark.parametrize("command", ["", "   ", [], [""], ["python", 3], None, {"a": 1}, "a\0b", 5])
    def test_a_command_runs_something(self, command):
        found = codes(good(task__command=command))
        assert any(path.startswith("task.command") for path in found)

    def test_a_command_is_kept_as_submitted(self):
        argv = ["python", "t.py", "--name", "021 SP run.ipynb", ""]
        assert accepted(good(training__launcher="script", task__command=argv))["task"]["command"] == argv
        line = "cd /x && python t.py  \\\n  --a 'b c'\n"
        assert accepted(good(training__launcher="script", task__command=line))["task"]["command"] == line


class TestShape:
    def test_gpu_required_is_the_cards_of_one_node(self):
        for cards in (2, 8):
            assert codes(good(task__gpu_required=cards)) == {"task.gpu_required": "shape_mismatch"}

    def test_world_size_is_checked(self):
        assert codes(good(training__world_size=4)) == {"training.world_size": "shape_mismatch"}
        assert accepted(good(training__world_size=8))["training"]["world_size"] == 8

    def test_more_than_any_mesh_has_today_is_accepted(self):
        assert accepted(good(training__n_nodes=10_000))["training"]["n_nodes"] == 10_000


class TestPaths:
    @pytest.mark.parametrize(
        "path", ["/data/x", "/tmp/heteroflow/x", "/home/lin/heteroflow/x", "/opt/x", "/mnt/nfs/a", "/workspace/x"]
    )
    def test_allowed(self, path):
        assert accepted(good(training__checkpoint_path=path))["training"]["checkpoint_path"] == path

    @pytest.mark.parametrize(
        "path",
        [
            "/database/x",
            "/etc",
            "/",
            "/home/lin/x",
            "/home/heteroflow/x",
            "/home/a/b/heteroflow/x",
            "/tmp/x",
            "/root/.ssh",
            "/datax",
        ],
    )
    def test_compared_by_segments(self, path):
        assert codes(good(training__checkpoint_path=path)) == {"training.checkpoint_path": "path_not_allowed"}

    @pytest.mark.parametrize(
        "path", ["data/x", "/data/../etc", "/data/x/..", "~/x", "", "/data/\0x", "/data/" + "x" * 5000]
    )
    def test_malformed(self, path):
        assert codes(good(training__checkpoint_path=path)) == {"training.checkpoint_path": "invalid_field"}

    def test_spelled_in_one_way(self):
        assert (
            accepted(good(training__checkpoint_path="//data///ckpt/./x/"))["training"]["checkpoint_path"]
            == "/data/ckpt/x"
        )

    def test_an_operator_adds_roots(self):
        document = good(training__checkpoint_path="/scratch/x", training__dataset_path="/scratch/d")
        assert "training.checkpoint_path" in codes(document)
        assert check_task_group(document, ["/scratch/"]).document is not None

    def test_resume_may_also_name_what_the_task_sees(self):
        document = good(training__dataset_path="/mnt/d", training__resume_from_checkpoint="/checkpoint/a/step-5")
        assert accepted(document)["training"]["resume_from_checkpoint"] == "/data/ckpt/llama/a/step-5"
        document["training"]["resume_from_checkpoint"] = "/dataset"
        assert accepted(document)["training"]["resume_from_checkpoint"] == "/mnt/d"
        assert accepted(accepted(document)) == accepted(document)
        assert accepted(good(training__resume_from_checkpoint="/data/other/step-5"))
        for path in ("/etc/step-5", "/checkpointer/x", "/checkpoint/../../etc"):
            assert "training.resume_from_checkpoint" in codes(good(training__resume_from_checkpoint=path))

    def test_resume_from_a_directory_the_group_does_not_have(self):
        document = good(training__checkpoint_path=DELETED, training__resume_from_checkpoint="/checkpoint/step-5")
        (finding,) = check_task_group(document).errors
        assert "training.checkpoint_path" in finding.hint


class TestLater:
    @pytest.mark.parametrize(
        "changes",
        [
            {"training__topology": {"level": "rack"}},
            {"training__sla": "spot"},
            {"training__sweep": {"lr": [1, 2]}},
            {"task__hugepages": "1g"},
            {"task__image_pull_credential": {"password": "S3cr3t!"}},
            {"preflight": "strict"},
        ],
    )
    def test_what_would_silently_not_happen_is_refused(self, changes):
        checked = check_task_group(good(**changes))
        assert [finding.code for finding in checked.errors] == ["not_supported_yet"]
        assert checked.errors[0].hint
        assert "S3cr3t" not in repr(checked.errors)

    def test_keep_last_n(self):
        assert accepted(good(training__keep_last_n=3))["training"]["keep_last_n"] == 3
        for wrong in (0, -1, 1.5, "two", 10**4, None, True):
            assert "training.keep_last_n" in codes(good(training__keep_last_n=wrong))
        for over in ({"training__checkpoint_path": DELETED}, {"training__framework": "tensorflow"}):
            warned = check_task_group(good(training__keep_last_n=3, **over)).warnings
            assert "training.keep_last_n" in {finding.path for finding in warned}

    def test_the_model_to_begin_with_is_a_path(self):
        kept = accepted(good(training__base_checkpoint="/data/models//llama3-8b/"))
        assert kept["training"]["base_checkpoint"] == "/data/models/llama3-8b"
        for wrong, code in (("registry/models/x", "invalid_field"), ("/etc", "path_not_allowed"), (7, "invalid_field")):
            assert codes(good(training__base_checkpoint=wrong)) == {"training.base_checkpoint": code}

    def test_limits_are_seconds(self):
        kept = accepted(good(training__deadline_s=3600, training__max_wait_s=60))
        assert (kept["training"]["deadline_s"], kept["training"]["max_wait_s"]) == (3600, 60)
        for wrong in (0, -1, 1.5, "1h", 10**10, None, True):
            assert set(codes(good(training__deadline_s=wrong, training__max_wait_s=wrong))) == {
                "training.deadline_s",
                "training.max_wait_s",
            }
        assert "did you mean deadline_s" in errors_at(good(training__walltime=60), "training.walltime")[0].message

    def test_recovery_names_classes_of_the_infrastructure_and_writes_them_down(self):
        kept = accepted(good(training__recovery={"max_restarts": 3}))["training"]["recovery"]
        assert kept == {"max_restarts": 3, "on": list(INFRASTRUCTURE)}
        assert accepted(good(training__recovery=kept))["training"]["recovery"] == kept
        some = {"max_restarts": 0, "on": ["nccl_timeout", "cuda_init"]}
        assert accepted(good(training__recovery=some))["training"]["recovery"]["on"] == ["cuda_init", "nccl_timeout"]
        assert accepted(good(training__recovery={"max_restarts": 1, "on": "nccl_init"}))
        text = b"training: {recovery: {max_restarts: 2, on: [nccl_init]}}"
        assert not [path for path in codes(parse_yaml(text)) if "recovery" in path]

    @pytest.mark.parametrize(
        "wrong",
        [
            None,
            3,
            [],
            {},
            {"on": ["nccl_init"]},
            {"max_restarts": -1},
            {"max_restarts": 101},
            {"max_restarts": True},
            {"max_restarts": 1, "on": []},
            {"max_restarts": 1, "on": ["user_code"]},
            {"max_restarts": 1, "on": ["gpu_oom"]},
            {"max_restarts": 1, "on": ["nccl_init", "nccl_init"]},
            {"max_restarts": 1, "retries": 2},
            {"max_restarts": 1, 3: 2},
        ],
    )
    def test_what_is_no_recovery(self, wrong):
        (finding,) = check_task_group(good(training__recovery=wrong)).errors
        assert finding.path.startswith("training.recovery") and finding.hint

    def test_what_only_describes_is_kept(self):
        document = good(
            training__seed=42,
            training__model="llama3-8b",
            training__checkpoint_interval=600,
            training__sla="standard",
            preflight="off",
            notes="line\nline",
            labels={"team": "nlp"},
            tenant="nlp",
        )
        kept = accepted(document)
        assert kept["training"]["seed"] == "42"
        assert kept["notes"] == "line\nline"
        assert kept["tenant"] == "nlp"

    def test_rulings(self):
        assert "task.command" in errors_at(good(task__entry_point="x"), "task.entry_point")[0].hint
        assert codes(good(training__preemptible=True)) == {"training.preemptible": "not_for_training"}
        assert accepted(good(preemptible=False))
        (warning, *_) = check_task_group(good(max_retries=3)).warnings
        assert warning.code == "no_effect"


class TestLaunchLine:
    @pytest.mark.parametrize(
        "command",
        [
            "torchrun --standalone t.py",
            "torchrun --nnodes=3 t.py",
            "torchrun --nnodes 1 t.py",
            "torchrun --nnodes=1:2 t.py",
            "cd /x && python -m torch.distributed.run --nproc-per-node=8 t.py",
            'bash -c "torchrun --node_rank=0 t.py"',
            ["torchrun", "--nproc_per_node", "2", "t.py"],
        ],
    )
    def test_contradictions_of_the_shape(self, command):
        assert codes(good(task__command=command)) == {"task.command": "launch_contradiction"}

    @pytest.mark.parametrize(
        "command",
        [
            "torchrun t.py",
            "torchrun --nnodes=2 --nproc_per_node=4 --node_rank=$NODE_RANK t.py",
            "torchrun --nnodes=$NNODES --nproc_per_node=$LOCAL_WORLD_SIZE t.py",
            "torchrun --nnodes=2:2 --nproc_per_node=gpu t.py",
            "torchrun t.py --nnodes=7 --standalone",
            ["torchrun", "--nnodes", "2", "t.py"],
        ],
    )
    def test_lines_that_fit(self, command):
        assert accepted(good(task__command=command))

    def test_one_node_may_stand_alone(self):
        assert accepted(good(training__n_nodes=1, task__command="torchrun --standalone --node_rank=0 t.py"))

    def test_a_declared_launcher_is_called(self):
        assert codes(good(training__launcher="accelerate")) == {"training.launcher": "launch_contradiction"}
        assert accepted(good(training__launcher="torchrun"))


class TestWarnings:
    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"training__checkpoint_path": DELETED}, "no_checkpoint_path"),
            ({}, "shared_storage_unproved"),
            ({"task__image": "r/pt"}, "mutable_image"),
            ({"task__image": "reg:5000/pt:latest"}, "mutable_image"),
            ({"name": "train_final_v3"}, "vague_name"),
        ],
    )
    def test_worth_saying(self, changes, code):
        checked = check_task_group(good(**changes))
        assert checked.document is not None
        assert code in [warning.code for warning in checked.warnings]

    def test_nothing_to_say(self):
        assert check_task_group(good(training__n_nodes=1)).warnings == []


def test_a_refusal_carries_every_finding():
    with pytest.raises(InvalidInput) as refused:
        accepted_task_group(good(name=DELETED, task__command=DELETED))
    problem = refused.value.problem
    assert problem.status == 400
    assert {finding.path for finding in problem.findings} == {"name", "task.command"}
    assert "2 things" in problem.message


def test_a_document_too_large_for_a_log_entry_is_refused_as_one():
    fits = good(task__command="汉" * 20_000)
    assert accepted(fits)
    fits["task"]["env"] = {f"E{at}": "汉" * 10_000 for at in range(3)}
    assert codes(fits) == {"document": "invalid_field"}


def test_a_yaml_text_that_looks_like_a_number_arrives_as_text():
    yaml = encode_document(GOOD).replace(b'"llama-ft math"', b"2026")
    assert accepted(parse_strict_json(encode_document(parse_yaml(yaml))))["name"] == "2026"


def test_yaml_and_json_of_one_document_agree():
    yaml = b"""
name: 2026-01-01
task_type: training
training:
  launcher: script
  framework: ddp
  n_nodes: 2
  per_node_gpu: 4
  hyper_params: {lr: 1e-4, amp: on, cap: 1_000}
  seed: 0755
task:
  command: [python, t.py, --steps, 100]
  gpu_required: 4
  env: {A: no, B: 1.10}
"""
    read = parse_yaml(yaml)
    document = accepted(read)
    assert document["name"] == "2026-01-01"
    assert document["training"]["hyper_params"] == {"amp": "on", "cap": "1_000", "lr": "1e-4"}
    assert document["task"]["env"] == {"A": "no", "B": "1.10"}
    assert document["task"]["command"] == ["python", "t.py", "--steps", "100"]
    assert accepted(parse_strict_json(encode_document(read))) == document
