"""Parameters that a framework consumes (SPEC G6): values, exclusions, and the arithmetic they must satisfy.

Keys that the chosen framework does not consume are the script's own and are not judged. Rules of Megatron:
megatron/training/arguments.py; of DeepSpeed: runtime/config.py, runtime/zero/config.py, runtime/pipe/engine.py.
"""

from collections.abc import Callable, Mapping

from schemas.rules.frameworks.megatron import ARGUMENTS as MEGATRON_ARGS
from schemas.rules.frameworks.parameters import (
    ACCUMULATION,
    GLOBAL_BATCH,
    MICRO_BATCH,
    OFF,
    PRECISION,
    PRECISIONS,
    SHARDING,
    SHARDING_GROUP,
    SIZES,
    STRATEGIES,
    TRUE,
    WHOLE,
    Parameters,
)
from schemas.rules.guards.calls import Walk
from schemas.rules.guards.deepspeed_config import judge_config
from schemas.rules.guards.judge import Judge
from schemas.rules.guards.launch import Launch
from schemas.rules.guards.parameter_names import judge_names

PREFIX = "training.hyper_params"
CODE = "framework_parameter"


class _Parameters(Parameters):
    """Looked up for a verdict: what is wrong with them is told."""

    def __init__(self, values: Mapping[str, str], judge: Judge) -> None:
        super().__init__(values)
        self.judge = judge

    def key(self, names: tuple[str, ...]) -> str | None:
        """The given key of several that mean one; two that differ are refused."""
        given = [self.names[name] for name in names if name in self.names]
        if len({self.values[name] for name in given}) > 1:
            said = f"and {PREFIX}.{given[1]} mean the same, but are {self.said(given[0])} and {self.said(given[1])}"
            self.refuse(given[0], said, "Keep one of them.")
        return given[0] if given else None

    def said(self, key: str) -> str:
        return self.judge.shown(self.values[self.names.get(key, key)])

    def whole(self, names: tuple[str, ...]) -> int | None:
        key = self.key(names)
        if key is None:
            return None
        if not WHOLE.match(self.values[key]):
            self.refuse(key, f"is {self.said(key)}, which is no whole number from 1", "Write digits alone, such as 2.")
            return None
        return int(self.values[key])

    def refuse(self, key: str, said: str, hint: str) -> None:
        self.judge.refuse(CODE, said, hint, f"{PREFIX}.{self.names.get(key, key)}")

    def warn(self, key: str, said: str, hint: str) -> None:
        self.judge.warn(CODE, said, hint, f"{PREFIX}.{self.names.get(key, key)}")


def judge_parameters(values: Mapping[str, str], walk: Walk | None, launches: list[Launch], judge: Judge) -> None:
    """walk: None where the command could not be read."""
    given = _Parameters(values, judge)
    framework = judge.shape.framework
    judge_names(given, judge)
    if framework in PRECISIONS:
        _precision(given, framework)
    if framework == "megatron":
        _megatron(given, walk, launches)
    elif framework == "deepspeed":
        _deepspeed(given)
    elif framework == "fsdp":
        _fsdp(given)


def _precision(given: _Parameters, framework: str) -> None:
    allowed = PRECISIONS[framework]
    key = given.key(PRECISION)
    if key is not None and given.values[key] not in allowed:
        given.refuse(
            key, f"is {given.said(key)}; it must be one of {', '.join(allowed)}", f"Use {' or '.join(allowed)}."
        )
    both = [name for name in ("fp16", "bf16") if given.get(name) in TRUE]
    if len(both) == 2:
        given.refuse("fp16", f"and {PREFIX}.bf16 are both on", "Keep one of them.")
    elif both and key is not None and given.values[key] in ("fp16", "bf16") and given.values[key] != both[0]:
        given.refuse(both[0], f"is on, but {PREFIX}.{key} is {given.said(key)}", "Keep one of them.")


def _meant(strategy: str) -> str:
    """Of FSDP, as ZeRO and Accelerate call it too."""
    spelled = strategy.upper().replace("-", "_")
    alike = {"ZERO2": "SHARD_GRAD_OP", "ZERO3": "FULL_SHARD", "1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD"}
    meant = spelled if spelled in STRATEGIES else alike.get(spelled.replace("_", ""))
    return (
        f"Write {meant}."
        if meant
        else "FULL_SHARD splits parameters, gradients and optimizer; SHARD_GRAD_OP the last two."
    )


def _fsdp(given: _Parameters) -> None:
    key = given.key(SHARDING)
    strategy = given.values[key] if key else ""
    if key and strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES[:5])
        given.refuse(key, f"is {given.said(key)}; it must be one of {known}", _meant(strategy))
    if key and "HYBRID" in strategy and given.judge.shape.nodes == 1:
        given.warn(key, f"is {strategy}, which on one node is the same as without HYBRID", "Use FULL_SHARD.")
    if "zero_stage" in given.names:
        given.refuse("zero_stage", "is of DeepSpeed, and training.framework is fsdp", "Remove it, or use deepspeed.")
    _hybrid_group(given, key, strategy)


def _hybrid_group(given: _Parameters, key: str | None, strategy: str) -> None:
    """A shard group of another size than a node must still divide the world."""
    size, world = given.whole(SHARDING_GROUP), given.judge.shape.world
    if size is None or world is None:
        return
    name = given.key(SHARDING_GROUP) or ""
    if world % size:
        given.refuse(name, f"is {size}, which does not divide the world of {world}", "Use a divisor of the world.")
    elif key and strategy in STRATEGIES and "HYBRID" not in strategy:
        given.warn(name, f"has no meaning with {strategy}", "Use HYBRID_SHARD.")


def _deepspeed(given: _Parameters) -> None:
    stage = given.get("zero_stage")
    if stage is not None and stage not in ("0", "1", "2", "3"):
        given.refuse("zero_stage", f"is {given.said('zero_stage')}; it must be 0, 1, 2 or 3", "Write 0, 1, 2 or 3.")
        stage = None
    level = int(stage or 0)
    for key, least in (("offload_param", 3), ("offload_optimizer", 1)):
        if (given.get(key) or "") not in OFF and stage is not None and level < least:
            given.refuse(key, f"needs zero_stage {least} or more, and it is {stage}", f"Set zero_stage to {least}.")
    if sharding := given.key(SHARDING):
        given.refuse(sharding, "is of FSDP, and training.framework is deepspeed", "Use zero_stage, or framework fsdp.")
    pp = given.whole(SIZES["pp"])
    if pp is not None and pp > 1 and level >= 2:
        said = f"is {stage}, which DeepSpeed refuses together with pipeline parallelism ({pp} stages)"
        given.refuse("zero_stage", said, "Use zero_stage 0 or 1.")
    world = given.judge.shape.world
    tp = given.whole(SIZES["tp"])
    if world is not None:
        parts = (tp or 1) * (pp or 1)
        if world % parts:
            key = given.key(SIZES["tp"]) or given.key(SIZES["pp"]) or ""
            given.refuse(
                key,
                f"makes tp x pp {parts}, which does not divide the world of {world}",
                "Choose sizes whose product divides n_nodes x per_node_gpu.",
            )
        else:
            _batches(given, world // parts)
            judge_config(given, world, given.judge)


def _batches(given: _Parameters, replicas: int) -> None:
    """global = micro x accumulation x data-parallel replicas; "auto" is filled in by the trainer."""
    keys = [given.key(names) for names in (GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION)]
    if any(key is not None and given.values[key] == "auto" for key in keys):
        return
    whole, micro, accum = (given.whole(names) for names in (GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION))
    if whole is None or keys[0] is None:
        return
    spelled = f"{PREFIX}.{keys[0]}"
    unit = (micro or 1) * (accum or 1) * replicas
    terms = f"micro {micro or '?'} x accumulation {accum or '?'} x {replicas} replicas"
    if micro is not None and accum is not None:
        if whole != unit:
            given.refuse(
                keys[0], f"is {whole}, but {terms} is {unit}", f"Set it to {unit}, or leave one of the three out."
            )
    elif whole % unit:
        given.refuse(keys[0], f"is {whole}, which {terms} does not divide", f"Use a multiple of {unit} in {spelled}.")


def _megatron(given: _Parameters, walk: Walk | None, launches: list[Launch]) -> None:
    judge = given.judge
    literal = _literals(launches)
    size = {name: given.whole(keys) for name, keys in SIZES.items()}
    for name, keys in SIZES.items():
        spelled = next((literal[key] for key in keys if key in literal), None)
        if spelled is not None and size[name] is not None and spelled != size[name]:
            message = f"is {size[name]}, but task.command says --{keys[0].replace('_', '-')} {spelled}"
            given.refuse(given.key(keys) or keys[0], message, "Keep one of them.")
        elif spelled is not None:
            size[name] = spelled
    _handed_on(given, walk, launches, literal)
    tp, pp, cp, ep = (size[name] or 1 for name in ("tp", "pp", "cp", "ep"))
    world, cards = judge.shape.world, judge.shape.cards
    where = next((key for names in SIZES.values() if (key := given.key(names))), None)
    path = f"{PREFIX}.{where}" if where else "task.command"

    def refuse(said: str, hint: str) -> None:
        judge.refuse(CODE, said, hint, path)

    if world is not None and world % (tp * pp * cp):
        said = f"makes tp {tp} x pp {pp} x cp {cp} = {tp * pp * cp}, which does not divide the world of {world}"
        refuse(said, "Choose sizes whose product divides n_nodes x per_node_gpu.")
    elif world is not None:
        _batches(given, world // (tp * pp * cp))
    words = [word for launch in launches for word in launch.script]
    if tp == 1 and ("--sequence-parallel" in words or given.get("sequence_parallel") in TRUE):
        refuse("turns sequence parallelism on with tp 1, which has nothing to split", "Set tensor_model_parallel_size.")
    if "--fp16" in words and "--bf16" in words:
        refuse("says both --fp16 and --bf16", "Keep one of them.")
    etp = size["etp"] or tp
    if world is not None and ep > 1 and world % (etp * ep * pp):
        said = f"makes etp {etp} x ep {ep} x pp {pp} = {etp * ep * pp}, which does not divide the world of {world}"
        refuse(said, "Choose sizes whose product divides n_nodes x per_node_gpu.")
    if cards is not None and tp > cards:
        said = f"makes tp {tp}, more than the {cards} cards of a node: tensor parallelism over the network is slow"
        judge.warn(CODE, said, "Keep tensor_model_parallel_size within a node.", path)
    verb = "does not fit the command's" if where else "says"
    _model(literal, tp, pp, cp, ep, lambda said, hint: refuse(f"{verb} {said}", hint))


def _literals(launches: list[Launch]) -> dict[str, int]:
    """Whole numbers that the script is given as options, by their name with underscores."""
    found: dict[str, int] = {}
    for launch in launches:
        words = launch.script
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                value = value if equals else "".join(words[at + 1 : at + 2])
                if WHOLE.match(value):
                    found[name[2:].replace("-", "_")] = int(value)
    return found


def _handed_on(given: _Parameters, walk: Walk | None, launches: list[Launch], literal: Mapping[str, int]) -> None:
    """The script takes its parallelism from options alone: $MEGATRON_TP_PP_ARGS must reach it, unquoted."""
    judge = given.judge
    if walk is None or not launches or any(launch.options.opaque for launch in launches):
        return
    words = [word for launch in launches for word in launch.script]
    marks = [word for word in words if MEGATRON_ARGS in judge.unknowns.names(word)]
    if any(MEGATRON_ARGS in judge.unknowns.quoted(word) for word in marks):
        said = f"puts quotes around ${MEGATRON_ARGS}, so that the script gets all of it as one argument"
        judge.refuse("quoted_arguments", said, "Remove the quotes.")
    unnamed = [
        key
        for names in list(SIZES.values())[:4]
        if (key := given.key(names)) and given.values[key] != "1" and names[0] not in literal
    ]
    if (
        unnamed
        and not marks
        and not any(f"${MEGATRON_ARGS}" in word or f"{{{MEGATRON_ARGS}}}" in word for word in words)
    ):
        said = f"does not use ${MEGATRON_ARGS}, so that {PREFIX}.{unnamed[0]} would have no effect"
        judge.refuse("unused_parameters", said, f"Add ${MEGATRON_ARGS} behind the script, without quotes.")
    if not any(word.partition("=")[0] in ("--tensorboard-dir", "--tensorboard_dir") for word in words):
        said = "gives Megatron no --tensorboard-dir, so there will be no curves"
        judge.warn("no_tensorboard_dir", said, 'Add --tensorboard-dir "$HETEROFLOW_TB_DIR".')
    names = {word.partition("=")[0] for word in words}
    if "--load" in names and "--exit-on-missing-checkpoint" not in names:
        said = "loads without --exit-on-missing-checkpoint: a checkpoint that is gone would mean random weights"
        judge.warn("silent_fresh_start", said, "Add --exit-on-missing-checkpoint where the run goes on from one.")


def _model(literal: Mapping[str, int], tp: int, pp: int, cp: int, ep: int, refuse: Callable[[str, str], None]) -> None:
    def rule(holds: bool, said: str, hint: str) -> None:
        if not holds:
            refuse(said, hint)

    heads, groups = literal.get("num_attention_heads"), literal.get("num_query_groups")
    hidden, layers = literal.get("hidden_size"), literal.get("num_layers")
    sequence, experts = literal.get("seq_length"), literal.get("num_experts")
    if heads is not None:
        rule(heads % tp == 0, f"--num-attention-heads {heads}, not divisible by tp {tp}", "Change one of them.")
        if hidden is not None and "kv_channels" not in literal:
            rule(hidden % heads == 0, f"--hidden-size {hidden}, not divisible by {heads} heads", "Change one of them.")
    if groups is not None:
        fits = groups % tp == 0 or tp % groups == 0
        rule(
            fits, f"--num-query-groups {groups}, which neither divides nor is divided by tp {tp}", "Change one of them."
        )
    if sequence is not None and cp > 1:
        rule(sequence % (2 * cp) == 0, f"--seq-length {sequence}, not divisible by 2 x cp {cp}", "Change one of them.")
    uneven = any(name.startswith(("decoder_first_pipeline", "decoder_last_pipeline")) for name in literal)
    if layers is not None and not uneven:
        rule(layers % pp == 0, f"--num-layers {layers}, not divisible by pp {pp}", "Change one of them.")
    if experts is not None:
        rule(experts % ep == 0, f"--num-experts {experts}, not divisible by ep {ep}", "Change one of them.")
    save, retain = literal.get("save_interval"), literal.get("save_retain_interval")
    if save and retain:
        said = f"--save-retain-interval {retain}, no multiple of --save-interval {save}"
        rule(retain % save == 0, said, "Change one of them.")
