#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A release check: the projects themselves take what fsdplan emit writes for them.

    PYTHON tests/exec/projects.py BUILD PROJECT MEGATRON_LM [BRIDGE | TORCHTITAN]
    PLANS=250 SEED=1 PYTHON tests/exec/projects.py ...

PROJECT is megatron, bridge or torchtitan; then the folder of Megatron-LM's checkout, and of the other project's if it
is one. For every answer of several queries, and with PLANS for so many plans that are chosen at random, megatron parses
and validates the flags, makes the model's configuration and, once for each model, builds it without Transformer Engine
on one rank, if it can be; bridge runs the configuration's file and all that its pretrain() does to a configuration
before it starts, and compares its model, its optimizer and how it shards with what Megatron-LM makes of the flags for
the same answer; torchtitan runs the file, has the trainer's configuration change the model's, and builds the model. A
model that is built must have as many parameters as fsdplan counts. Needs PyTorch and what the projects import, but no
GPU: Transformer Engine and other libraries for GPUs are replaced by empty classes, and the GPU by one that is only
described."""
import contextlib
import dataclasses
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import itertools
import json
import os
import random
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
import types
import typing
import warnings

import torch
import torch.testing._internal.distributed.fake_pg  # the backend "fake"

warnings.simplefilter("ignore")
typing.override = getattr(typing, "override", lambda f: f)  # before Python 3.12

REPLACED = ("transformer_engine", "transformer_engine_torch", "nvidia_resiliency_ext", "deep_ep",
            "modelopt", "megatron.energon", "megatron.bridge.diffusion")
DENSE = ["llama3-8b 8xh100 --gbs 64", "llama3-70b dgx-h100:8 --gbs 256", "llama3-8b 8xb200 --gbs 64 --allow mixed"]
EXPERTS = ["qwen3-30b-a3b dgx-h100:2 --gbs 256", "mixtral-8x7b dgx-h100:4 --gbs 256"]
OF_MEGATRON = ["gpt-oss-120b dgx-h100:8 --gbs 256", "deepseek-v3 dgx-h100:32 --gbs 1024",
               "llama4-maverick dgx-h100:32 --gbs 1024 --seq 8192 --only ep=128",
               "llama4-scout,qk_l2_norm=all dgx-h100:16 --gbs 256 --seq 8192 --only ep=16",
               "kimi-k2 dgx-h100:64 --gbs 4096", "glm-4.5 dgx-b200:16 --gbs 1024 --allow mixed,lowbit",
               "qwen3-next-80b-a3b dgx-h100:8 --gbs 512", "qwen3.5-9b 8xh100 --gbs 64",
               "nemotron-nano-9b-v2 8xb200 --gbs 64", "nemotron-3-super-120b-a12b dgx-h100:32 --gbs 1024",
               "qwen3-30b-a3b dgx-h100:2 --gbs 256 --allow mixed,lowbit", "llama3-8b 8xh100 --gbs 64 --allow lowbit"]
STAGES = ["llama3-70b dgx-h100:8 --gbs 256 --only pp=4 --only vpp=1,2"]
ASKED = {"megatron": (DENSE + EXPERTS + OF_MEGATRON, ("megatron-fsdp", "megatron"), "torchrun"),
         "bridge": (DENSE + EXPERTS + OF_MEGATRON, ("megatron-fsdp", "megatron"), "bridge"),
         "torchtitan": (DENSE + EXPERTS + STAGES, ("fsdp2",), "torchtitan")}


class Fields(torch.nn.Module):
    """Transformer Engine's FusedAdam, whose arguments Megatron-LM asks for."""

    def __init__(self, params, master_weight_dtype=None, exp_avg_dtype=None, exp_avg_sq_dtype=None,
                 use_decoupled_grad=False, store_param_remainders=False):
        super().__init__()


class Norm(torch.nn.Module):
    """Transformer Engine's norms, of which Megatron-LM needs the weights alone."""

    def __init__(self, normalized_shape, has_bias=False, **more):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(normalized_shape))
        self.bias = torch.nn.Parameter(torch.empty(normalized_shape)) if has_bias else None


INSTEAD = {"FusedAdam": Fields, "RMSNorm": Norm, "LayerNorm": functools.partial(Norm, has_bias=True)}


class Empty(types.ModuleType):
    """A module that makes up every class and every module that is imported from it."""

    __path__ = []
    __version__ = "2.9.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in INSTEAD:
            value = INSTEAD[name]
        elif name[0].isupper():
            value = type(name, (torch.nn.Module,), {})
        else:
            value = importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *args, **kwargs):
        return None


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name in REPLACED or name.startswith(tuple(f"{r}." for r in REPLACED)):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


class Device:
    """The properties of a GPU that the projects ask for."""

    name, total_memory, multi_processor_count, major, minor = "H100", 80 << 30, 132, 9, 0


def replace_gpu():
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: Empty.__version__ if "transformer" in name and "engine" in name \
        else version(name)
    sys.meta_path.insert(0, Finder())
    torch.cuda.get_device_properties = lambda *device: Device
    torch.cuda.get_device_capability = lambda *device: (Device.major, 0)
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_available = lambda: True


def parsed(text):
    """Megatron-LM's arguments, parsed from a script with its flags."""
    from megatron.training import arguments
    words = shlex.split(text, comments=True)
    os.environ.update(w.split("=", 1) for w in words[:words.index("torchrun")] if "=" in w)
    script = next(i for i, word in enumerate(words) if word.endswith(("pretrain_gpt.py", "pretrain_hybrid.py")))
    sys.argv = words[script:]
    args = arguments.parse_args()
    arguments.validate_args(args, {})
    return args


def of_megatron(text, parameters, flags):
    from megatron.training import arguments
    args = parsed(text)
    arguments.core_transformer_config_from_args(args)
    of_engine_alone = args.hybrid_layer_pattern or args.experimental_attention_variant or \
        args.multi_latent_attention and args.q_lora_rank is None
    if parameters not in BUILT and not of_engine_alone:
        same(built_by_megatron(args), parameters)
        BUILT.add(parameters)


BUILT = set()  # by parameters: with them every model of ASKED is told from the others
WHOLE = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
         "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 1, "sequence_parallel": False,
         "virtual_pipeline_model_parallel_size": None, "pipeline_model_parallel_layout": None,
         "decoder_first_pipeline_num_layers": None, "decoder_last_pipeline_num_layers": None,
         "account_for_embedding_in_pipeline_split": False, "account_for_loss_in_pipeline_split": False,
         "mtp_num_layers": None, "transformer_impl": "local", "moe_grouped_gemm": False, "fp8": None,
         "fp8_param": False, "moe_token_dispatcher_type": "allgather", "recompute_granularity": None,
         "recompute_modules": None, "tp_comm_overlap": False, "delay_wgrad_compute": False,
         "moe_shared_expert_overlap": False, "overlap_moe_expert_parallel_comm": False,
         "gradient_accumulation_fusion": False, "no_persist_layer_norm": True, "perform_initialization": False}


def built_by_megatron(args):
    """Parameters of the model that Megatron-LM builds from its own classes on one rank, without prediction modules."""
    import gpt_builders
    from megatron.core import parallel_state
    from megatron.core.transformer import transformer_block
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    for name, value in WHOLE.items():
        setattr(args, name, value)
    args.padded_vocab_size = args.vocab_size
    torch.cuda.current_device = lambda: "meta"
    transformer_block.get_cpu_offload_context = lambda *args, **more: (contextlib.nullcontext(), None)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", store=torch.distributed.HashStore(), rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        init = DotProductAttention.__init__  # which is not for heads of two widths, as latent attention has
        DotProductAttention.__init__ = lambda self, *args, k_channels=None, v_channels=None, **more: init(
            self, *args, **more)
    with torch.device("meta"):
        model = gpt_builders.gpt_builder(args, True, True)
    return counted(model)


def counted(model):
    biases = (b for name, b in model.named_buffers() if "expert_bias" in name)  # routers', without gradients
    return sum(p.numel() for p in (*model.parameters(), *biases))


def same(made, parameters):
    if made != parameters:
        raise ValueError(f"{made} parameters, and fsdplan counts {parameters}")


# Settings that may differ: other words for the same (add_qkv_bias beside all biases, p2p unsaid, patterns of layers
# that are all alike), those of what is not used (apex's norms, layers in bf16 beside fp8, softmax outside Transformer
# Engine, muon, offloading, inference), those of the trainer and not of the model there (random numbers, rates), and
# what Megatron-Bridge decides (HybridEP's padding, checkpoints whose layers differ).
UNLIKE = {"add_qkv_bias", "attention_softmax_in_fp32", "barrier_with_L1_time", "cp_comm_type",
          "expert_tensor_parallel_num_weight_shards", "hetereogenous_dist_checkpoint", "inference_sampling_seed",
          "lr", "masked_softmax_fusion", "min_lr", "moe_hybridep_pad_uneven_dispatch_inputs", "moe_layer_freq",
          "muon_momentum", "num_layers_at_end_in_bf16", "num_layers_at_start_in_bf16", "optimizer_offload_fraction",
          "persist_layer_norm", "tensor_parallel_num_weight_shards", "use_cpu_initialization", "use_custom_fsdp",
          "use_te_rng_tracker", "window_attn_skip_freq"}


def of_bridge(text, parameters, flags):
    from megatron.bridge.training.config import runtime_config_update
    from megatron.training import arguments, training
    config = run(text)["config"]()
    runtime_config_update(config)
    args = parsed(flags)
    unused = set() if config.model.fp8 else {"fp8_recipe"}
    unused |= {"adam_beta2"} if config.optimizer.optimizer == "sgd" else set()
    unused |= {"apply_rope_fusion"} if config.model.position_embedding_type == "none" else set()
    unused |= {"grad_reduce_in_fp32"} if args.use_megatron_fsdp or args.params_dtype is torch.float32 else set()
    unused |= set() if args.use_megatron_fsdp else {"data_parallel_sharding_strategy"}
    pairs = ((config.model, arguments.core_transformer_config_from_args(args)),
             (config.ddp, training.get_megatron_ddp_config(args)),
             (config.optimizer, training.get_megatron_optimizer_config(args)[0]))
    unlike = [f"{field.name}: {ours!r}, by flags {theirs!r}" for one, other in pairs for field in
              dataclasses.fields(other) if field.name not in UNLIKE | unused and hasattr(one, field.name)
              and (ours := plain(getattr(one, field.name))) != (theirs := plain(getattr(other, field.name)))]
    if unlike:
        raise ValueError("; ".join(unlike))


def plain(value):
    """The value; for a function its name, since function objects differ between processes."""
    return getattr(value, "__name__", "a function") if callable(value) else value


def of_torchtitan(text, parameters, flags):
    config = run(text)["config"]()
    model = config.model_spec.model
    model.update_from_config(config=config)
    with torch.device("meta"):
        same(counted(model.build()), parameters)


def run(text):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        return runpy.run_path(file.name, run_name="plan")


def told(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def emitted(program, project):
    """For every answer of every query: its description, the file or None, Megatron-LM's flags for Megatron-Bridge, the
    number of ranks, and the parameters of the model."""
    queries, stacks, form = ASKED[project]
    for query, stack in ((q, s) for s in stacks for q in queries):
        model, cluster, *rest = query.split()
        what = ["--model", model, "--cluster", cluster, *rest, "--seq", "4096", "--set", f"stack={stack}"]
        for answer in json.loads(told(program, "query", *what, "--format", "json"))["results"]:
            yield (f"{stack} {query} rank {answer['rank']}",
                   *files(program, project, form, model, cluster, ["--plan", answer["id"]]))


def files(program, project, form, model, cluster, plan):
    """What `emitted` says of one plan."""
    parameters = json.loads(told(program, "show", "--model", model, "--format", "json"))["parameters"]
    machine = json.loads(told(program, "show", "--cluster", cluster, "--format", "json"))
    Device.major, Device.name = (10, "NVIDIA B200") if machine["device"].startswith("b200") else (9, "H100")
    file = subprocess.run([program, "emit", "--as", form, *plan], capture_output=True, text=True)
    flags = told(program, "emit", "--as", "torchrun", *plan) if project == "bridge" else None
    return (None if file.returncode else file.stdout, flags, machine["nodes"] * machine["devices_per_node"], parameters)


def drawn(program, project, plans, seed):
    """The same for random plans of all models: of thirty fields each takes another value if `emit` still writes it."""
    _, stacks, form = ASKED[project]
    draw = random.Random(seed)
    models = [m["name"] for m in json.loads(told(program, "show", "--format", "json")) if m["kind"] == "model"]
    shown = json.loads(told(program, "show", "--fields", "--format", "json"))
    fields = {f["field"]: values(f["values"]) for f in shown}
    while plans > 0:
        model, cluster = draw.choice(models), f"dgx-{draw.choice(('h100', 'b200'))}:{draw.choice((1, 2, 4, 8))}"
        plan = {"stack": draw.choice(stacks), "seq": "1024", "gbs": "1024", "mbs": "1"}
        plan |= {"strategy": "optim"} if plan["stack"] == "megatron" else {}
        written = None
        for field in ("stack", *draw.sample(sorted(fields), 30)):
            tried = plan | ({field: draw.choice(fields[field])} if field not in plan and fields[field] else {})
            words = ["--model", model, "--cluster", cluster, *(f"--set={f}={v}" for f, v in tried.items())]
            if subprocess.run([program, "emit", "--as", "torchtitan" if form == "torchtitan" else "torchrun", *words],
                              capture_output=True).returncode == 0:
                plan, written = tried, words
        if written:
            plans -= 1
            yield " ".join(written), *files(program, project, form, model, cluster, written)


def values(text):
    """Some of the values that `show --fields` says a field has."""
    if re.fullmatch(r"[\w+.-]+(\|[\w+.-]+)+", text):
        return text.split("|")
    joined = re.fullmatch(r"none, or ([\w|-]+) joined by \+", text)
    return joined[1].split("|") if joined else ["0.5"] if text == "0 to 1" else \
        ["1", "2", "4"] if "integer" in text or "number" in text else []


@contextlib.contextmanager
def environment(**more):
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main():
    build, project, megatron, *others = sys.argv[1:]
    check = {"megatron": of_megatron, "bridge": of_bridge, "torchtitan": of_torchtitan}[project]
    replace_gpu()
    sys.path[:0] = [*others, megatron]
    if project == "bridge":  # two folders have parts of one package
        importlib.import_module("megatron").__path__ = [os.path.join(others[0], "src/megatron"),
                                                        os.path.join(megatron, "megatron")]
    taken = refused = failed = 0
    with tempfile.TemporaryDirectory() as store, environment(XDG_DATA_HOME=store):
        program = os.path.join(build, "fsdplan")
        more = drawn(program, project, int(os.environ.get("PLANS", "0")), int(os.environ.get("SEED", "1")))
        for what, text, flags, ranks, parameters in itertools.chain(emitted(program, project), more):
            refused += text is None
            if text is None:
                continue
            try:
                with environment(WORLD_SIZE=str(ranks), RANK="0", LOCAL_RANK="0"), \
                        contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    check(text, parameters, flags)
                taken += 1
            except (Exception, SystemExit) as error:
                failed += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"{what}: {type(error).__name__} {error} at {where.filename}:{where.lineno}")
    print(f"{project}: {taken} taken, {failed} not, {refused} that emit says it cannot express")
    return 1 if failed or not taken else 0


if __name__ == "__main__":
    sys.exit(main())
