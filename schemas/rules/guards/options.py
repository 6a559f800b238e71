"""Options of the launchers, read as each launcher reads them: up to the script, whose own options are its own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from schemas.rules.guards.words import is_known, is_one_unknown


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Grammar:
    """flags take no value, values take one; short: other spellings. abbreviated: argparse takes unique beginnings."""

    flags: frozenset[str]
    values: frozenset[str]
    short: dict[str, str] = field(default_factory=dict)
    abbreviated: bool = True


# torch 2.13, torch/distributed/run.py and launch.py, which adds `use_env`.
TORCHRUN = Grammar(
    flags=_names("standalone module no_python run_path virtual_local_rank help"),
    values=_names(
        "nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts monitor_interval start_method "
        "event_log_handler role log_dir redirects tee local_ranks_filter duplicate_stdout_filters "
        "duplicate_stderr_filters node_rank master_addr master_port local_addr logs_specs numa_binding "
        "signals_to_handle shutdown_timeout"
    ),
    short={"-m": "module", "-r": "redirects", "-t": "tee", "-h": "help"},
)
LAUNCH = replace(TORCHRUN, flags=TORCHRUN.flags | {"use_env"})
# accelerate 1.15, accelerate/commands/launch.py: of another version, what is no flag takes a value.
ACCELERATE = Grammar(
    flags=_names(
        "quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic "
        "dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config use_megatron_lm same_network "
        "module no_python tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 fp8_use_autocast_during_eval debug "
        "help use_xpu ipex use_mps_device"
    ),
    values=_names(
        "config_file mixed_precision num_processes num_machines num_cpu_threads_per_process dynamo_backend "
        "dynamo_mode gpu_ids machine_rank main_process_ip main_process_port tee log_dir role rdzv_backend "
        "rdzv_conf max_restarts monitor_interval vm env main_training_function deepspeed_config_file zero_stage "
        "offload_optimizer_device offload_param_device offload_optimizer_nvme_path offload_param_nvme_path "
        "gradient_accumulation_steps gradient_clipping zero3_init_flag zero3_save_16bit_model deepspeed_hostfile "
        "deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher "
        "deepspeed_moe_layer_cls_names fsdp_version fsdp_offload_params fsdp_min_num_params "
        "fsdp_sharding_strategy fsdp_reshard_after_forward fsdp_auto_wrap_policy "
        "fsdp_transformer_layer_cls_to_wrap fsdp_backward_prefetch fsdp_state_dict_type fsdp_forward_prefetch "
        "fsdp_use_orig_params fsdp_cpu_ram_efficient_loading fsdp_sync_module_states "
        "fsdp_activation_checkpointing fsdp_activation_checkpointing_offload megatron_lm_tp_degree "
        "megatron_lm_use_custom_fsdp megatron_lm_no_load_optim megatron_lm_eod_mask_loss "
        "megatron_lm_overlap_cpu_optimizer_d2h_h2d megatron_lm_no_save_optim megatron_lm_optimizer_cpu_offload "
        "megatron_lm_use_precision_aware_optimizer megatron_lm_decoder_last_pipeline_num_layers "
        "megatron_lm_pp_degree megatron_lm_num_micro_batches megatron_lm_sequence_parallelism "
        "megatron_lm_recompute_activations megatron_lm_use_distributed_optimizer megatron_lm_gradient_clipping "
        "megatron_lm_recompute_granularity megatron_lm_recompute_method megatron_lm_recompute_num_layers "
        "megatron_lm_attention_backend megatron_lm_expert_model_parallel_size megatron_lm_context_parallel_size "
        "megatron_lm_attention_dropout megatron_lm_hidden_dropout megatron_lm_attention_softmax_in_fp32 "
        "megatron_lm_expert_tensor_parallel_size megatron_lm_calculate_per_token_loss "
        "megatron_lm_use_rotary_position_embeddings fp8_backend fp8_margin fp8_interval fp8_format "
        "fp8_amax_history_len fp8_amax_compute_algo fp8_override_linear_precision fp8_opt_level "
        "fp8_enable_fsdp_float8_all_gather fp8_pad_inner_dim aws_access_key_id aws_secret_access_key "
        "mpirun_hostfile parallelism_config_dp_replicate_size parallelism_config_dp_shard_size "
        "parallelism_config_tp_size parallelism_config_cp_size parallelism_config_cp_backend "
        "parallelism_config_cp_comm_strategy parallelism_config_sp_size parallelism_config_sp_backend "
        "parallelism_config_sp_seq_length parallelism_config_sp_seq_length_is_variable "
        "parallelism_config_sp_attn_implementation"
    ),
    short={"-m": "module", "-q": "quiet", "-t": "tee", "-h": "help"},
    abbreviated=False,
)
# deepspeed 0.19, deepspeed/launcher/runner.py.
DEEPSPEED = Grammar(
    flags=_names(
        "elastic_training no_ssh no_ssh_check no_python no_local_rank force_multi save_pid module bind_cores_to_rank "
        "help"
    ),
    values=_names(
        "hostfile include exclude num_nodes min_elastic_nodes max_elastic_nodes num_gpus num_accelerators master_port "
        "master_addr node_rank launcher launcher_args enable_each_rank_log autotuning bind_core_list ssh_port "
        "venv_script"
    ),
    short={"-H": "hostfile", "-i": "include", "-e": "exclude", "-h": "help"},
)
# paddle 3.3, paddle/distributed/launch/context/args_envs.py.
PADDLE = Grammar(
    flags=_names("help"),
    values=_names(
        "master legacy rank log_level log_overwrite sort_ip enable_gpu_log nnodes nproc_per_node log_dir run_mode "
        "job_id devices gpus npus xpus ips host start_port auto_parallel_config auto_cluster_config auto_tuner_json "
        "servers trainers trainer_num server_num gloo_port with_gloo max_restart elastic_level elastic_timeout"
    ),
    short={"-h": "help"},
)
# Open MPI 4.1 and Horovod; options with two values are named in MPI_TWO.
MPI = Grammar(
    flags=_names(
        "allow_run_as_root oversubscribe report_bindings bind_to_core tag_output display_map display_allocation "
        "verbose nooversubscribe use_hwthread_cpus quiet timestamp_output xml help v q d gloo mpi disable_cache"
    ),
    values=_names(
        "n np N npernode npersocket host hostfile machinefile default_hostfile bind_to map_by rank_by x wdir wd path "
        "prefix output_filename mca_params tune timeout cpus_per_proc ppr rankfile start_timeout network_interfaces c H"
    ),
    short={
        **{f"-{name}": name for name in ("np", "x", "wdir", "wd", "host", "hostfile", "machinefile", "npernode", "N")},
        **dict.fromkeys(("-n", "-c"), "np"),
        "-H": "host",
        "-bind-to": "bind_to",
        "-ppn": "npernode",
        "-map-by": "map_by",
        "-oversubscribe": "oversubscribe",
        "-mca": "mca",
        "-gmca": "mca",
        "-allow-run-as-root": "allow_run_as_root",
        "-v": "v",
        "-q": "q",
        "-d": "d",
    },
    abbreviated=False,
)
_SPACE = re.compile(r"\s")
_TWO_VALUES = _names("mca gmca am")


@dataclass(slots=True)
class Options:
    """given: option to (as it was spelled, value); the last of a repeated one. rest: the script and its arguments.

    opaque: an unknown text stands among the options, so that what is not seen may be there all the same. one_dash: long
    options with one dash, which argparse takes for something else."""

    given: dict[str, tuple[str, str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    opaque: bool = False
    one_dash: list[str] = field(default_factory=list)
    quoted: list[str] = field(default_factory=list)

    def value(self, name: str) -> str | None:
        found = self.given.get(name)
        return found[1] if found else None

    def spelled(self, name: str) -> str:
        return self.given[name][0] if name in self.given else f"--{name}"


def read_options(words: Sequence[str], grammar: Grammar) -> Options:
    """words: behind the launcher."""
    found = Options()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if is_one_unknown(word):
            found.opaque = True
        elif word == "--":
            found.rest = list(words[at:])
            break
        elif word.startswith("-") and _SPACE.search(word.partition("=")[0]) and grammar is not MPI:
            found.quoted.append(word)
            found.rest = list(words[at - 1 :])
            break
        elif word.startswith("-") and len(word) > 1:
            at = _option(word, words, at, grammar, found)
        else:
            found.rest = list(words[at - 1 :])
            break
    return found


def _option(word: str, words: Sequence[str], at: int, grammar: Grammar, found: Options) -> int:
    """The position behind the option and its value."""
    spelled, equals, value = word.partition("=")
    if not is_known(spelled):
        found.opaque = True
        return at
    name = _name(spelled, grammar)
    if name in _TWO_VALUES and grammar is MPI:
        return at + 2
    if _needs_two_dashes(spelled, name, grammar):
        found.one_dash.append(spelled)
    if name in grammar.flags:
        found.given[name] = (spelled, value)
        return at
    known = name in grammar.values
    if not known and not spelled.startswith("--") and (short := grammar.short.get(spelled[:2])) in grammar.values:
        found.given[str(short)] = (spelled[:2], word[2:])
        return at
    takes = known or grammar is ACCELERATE
    if not known:
        found.unknown.append(spelled)
    if not known and takes and not equals and words[at : at + 1] and words[at].endswith(".py"):
        return at
    if takes and not equals:
        value = words[at] if at < len(words) else ""
        at += 1
    if takes:
        found.given[name] = (spelled, value)
    return at


def _needs_two_dashes(spelled: str, name: str, grammar: Grammar) -> bool:
    if grammar is MPI or spelled.startswith("--") or spelled in grammar.short or len(name) < 2:
        return False
    return grammar is ACCELERATE or name in grammar.values or name in grammar.flags


def _name(spelled: str, grammar: Grammar) -> str:
    if spelled in grammar.short:
        return grammar.short[spelled]
    name = spelled.lstrip("-").replace("-", "_")
    if name in grammar.flags or name in grammar.values or not grammar.abbreviated or not spelled.startswith("--"):
        return name
    meant = [known for known in grammar.flags | grammar.values if known.startswith(name)]
    return meant[0] if len(meant) == 1 else name
