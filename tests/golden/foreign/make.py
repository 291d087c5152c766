"""Writes the folders here: python3 make.py, with deepspeed and torch (CPU). Run by hand; the files are committed.

Each folder has a config.json, what the program saved, and expected.safetensors: what zero_to_fp32.py reads from it, or
torch's own state dict. further.json has the
losses of five more steps from each folder that holds moments. The model has the names and shapes of a llama of one layer; its loss touches every parameter.
"""
import json, os, shutil, struct, sys, tempfile

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
import torch
import torch.multiprocessing as mp

HERE = os.path.dirname(os.path.abspath(__file__))
HIDDEN, WIDTH, VOCAB, HEADS, KV = 8, 12, 13, 2, 1
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDTH,
          "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV, "vocab_size": VOCAB,
          "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
          "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False}
HEAD = HIDDEN // HEADS
SHAPES = {"model.embed_tokens.weight": (VOCAB, HIDDEN),
          "model.layers.0.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
          "model.layers.0.self_attn.k_proj.weight": (KV * HEAD, HIDDEN),
          "model.layers.0.self_attn.v_proj.weight": (KV * HEAD, HIDDEN),
          "model.layers.0.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
          "model.layers.0.mlp.gate_proj.weight": (WIDTH, HIDDEN),
          "model.layers.0.mlp.up_proj.weight": (WIDTH, HIDDEN),
          "model.layers.0.mlp.down_proj.weight": (HIDDEN, WIDTH),
          "model.layers.0.input_layernorm.weight": (HIDDEN,),
          "model.layers.0.post_attention_layernorm.weight": (HIDDEN,),
          "model.norm.weight": (HIDDEN,)}
FROZEN = "model.layers.0.self_attn.o_proj.weight"  # a product of its own: q, k and v are one


class Leaf(torch.nn.Module):
    """A loss of its own parameters, so that stage 3 and FSDP gather them here."""

    def forward(self, x):
        return sum((p.float() * x).square().sum() + p.float().sum() for p in self.parameters(recurse=False))


class Model(torch.nn.Module):
    """Parameters under the names of SHAPES. The output is a loss that depends on all of them."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        for name, shape in SHAPES.items():
            *path, leaf = name.split(".")
            module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, Leaf())
                module = module._modules[part]
            values = torch.randn(shape, generator=generator) * 0.12 + (1.0 if len(shape) == 1 else 0.0)
            module.register_parameter(leaf, torch.nn.Parameter(values))
        self.add_module("lm_head", Leaf())
        self.lm_head.register_parameter("weight", self.model.embed_tokens.weight)  # tied
        self.model.register_buffer("steps", torch.tensor([3, 5]))

    def forward(self, x):
        return sum(leaf(x) for leaf in self.model.modules() if isinstance(leaf, Leaf) and leaf._parameters)


def save_expected(folder, state):
    header, data = {}, b""
    for name, tensor in sorted(state.items()):
        if not tensor.is_floating_point():
            continue
        raw = tensor.detach().float().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "expected.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def fresh(name, others={}):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**CONFIG, **others}, file, indent=1)
    return folder


def join(rank, ranks, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    torch.set_num_threads(1)


def run_deepspeed(rank, ranks, port, folder, stage, dtype, frozen, extra):
    join(rank, ranks, port)
    import deepspeed
    import deepspeed.comm.torch as comm
    comm.build_shm_op = lambda: None
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed(dist_backend="gloo")
    config = {"train_micro_batch_size_per_gpu": 1, dtype: {"enabled": dtype != "fp32"}, "zero_optimization": {"stage": stage},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "steps_per_print": 1000000, **extra}
    if dtype == "fp32":
        del config[dtype]
    if dtype == "fp16":
        config["fp16"]["initial_scale_power"] = 4
    model = Model()
    if frozen:
        model.get_parameter(FROZEN).requires_grad_(False)
    decay = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    other = [p for p in model.parameters() if p.requires_grad and p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}], lr=1e-2)
    engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    for step in range(2):
        engine.backward(engine(torch.tensor(0.5 + step)))
        engine.step()
    engine.save_checkpoint(folder)
    torch.distributed.barrier()


def run_tp(rank, ranks, port, folder):
    """DeepSpeed's AutoTP cuts transformers' llama over all ranks."""
    join(rank, ranks, port)
    import deepspeed
    import deepspeed.comm.torch as comm
    from transformers import AutoConfig, AutoModelForCausalLM
    comm.build_shm_op = lambda: None
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager").float()
    model = deepspeed.tp_model_init(model, tp_size=ranks, dtype=torch.bfloat16)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "bf16": {"enabled": True},
              "zero_allow_untested_optimizer": True, "tensor_parallel": {"autotp_size": ranks}, "steps_per_print": 1000000}
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    engine = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-2), config=config)[0]
    tokens = torch.tensor([[(5 * i + 1) % VOCAB for i in range(16)]])
    for step in range(2):
        engine.backward(engine(input_ids=tokens, labels=tokens, use_cache=False).loss)
        engine.step()
    engine.save_checkpoint(folder)
    torch.distributed.barrier()


def tp_folder():
    """Odd cuts: 13 tokens over 2 ranks, and heads that are wider than the model."""
    folder = fresh("tp2", {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4})
    mp.spawn(run_tp, (2, 29619, folder), nprocs=2)
    remove_scripts(folder)
    save_expected(folder, state_of_tp(folder)["fp32"])


def state_of_tp(folder):
    """Masters and moments as ds_to_universal.py merges them."""
    with tempfile.TemporaryDirectory() as aside:
        to_universal(os.path.join(folder, "global_step2"), aside)
        zero, state = os.path.join(aside, "zero"), {"fp32": {}, "exp_avg": {}, "exp_avg_sq": {}}
        for name in os.listdir(zero):
            for kind in state:
                if os.path.exists(os.path.join(zero, name, "exp_avg.pt")):  # not a second name of a tied one
                    state[kind][name] = torch.load(os.path.join(zero, name, kind + ".pt"), weights_only=False)["param"]
    return state


def run_dcp(rank, ranks, port, folder, wrapped):
    join(rank, ranks, port)
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (ranks,))
    model = Model()
    del model.model.steps
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(2):
        model(torch.tensor(0.5 + step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    state = get_model_state_dict(model)
    if wrapped:
        state = {"app": {"model": state, "optim": get_optimizer_state_dict(model, optimizer), "step": 2}}
    os.chdir(folder)  # .metadata keeps the path
    dcp.save(state, checkpoint_id=".")
    whole = {name: value.full_tensor() for name, value in get_model_state_dict(model).items()}
    if rank == 0:
        save_expected(folder, whole)
    dist.destroy_process_group()


def remove_scripts(folder):
    for script in os.listdir(folder):
        if script.endswith(".py"):
            os.remove(os.path.join(folder, script))


def deepspeed_folder(port, name, ranks, stage, dtype, frozen=False, **extra):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    folder = fresh(name)
    mp.spawn(run_deepspeed, (ranks, port, folder, stage, dtype, frozen, extra), nprocs=ranks)
    remove_scripts(folder)
    save_expected(folder, masters_of_bf16(folder, ranks) if extra else state_of_plain(folder)["masters"] if stage == 0 else
                  get_fp32_state_dict_from_zero_checkpoint(folder))


def state_of_plain(folder):
    """Masters and moments of a folder without ZeRO, whose optimizer numbers the parameters of both its groups."""
    state = torch.load(os.path.join(folder, "global_step2", "mp_rank_00_model_states.pt"), weights_only=False)
    inner = state["optimizer"].get("optimizer_state_dict", state["optimizer"])["state"]
    names = [[name for name, shape in SHAPES.items() if (len(shape) > 1) == matrices] for matrices in (True, False)]
    masters = state["module"]
    if "fp32_groups" in state["optimizer"]:  # of fp16
        masters = dict(zip(sum(names, []), sum(state["optimizer"]["fp32_groups"], [])))
    return {"masters": masters, "step": inner[0]["step"].item(),
            **{kind: {name: inner[i][kind] for i, name in enumerate(sum(names, []))} for kind in ("exp_avg", "exp_avg_sq")}}


def numbered_folders():
    """Without ZeRO, numbers of parameters that nothing names: of three groups, and in another order than the module's."""
    module = {"w": torch.ones(2, 3), "v": torch.ones(3, 2), "b": torch.ones(2)}
    for name, groups in {"three_groups": [["w"], ["v"], ["b"]], "other_order": [["v", "w"], ["b"]]}.items():
        step, names = os.path.join(HERE, name, "global_step1"), sum(groups, [])
        shutil.rmtree(os.path.join(HERE, name), ignore_errors=True)
        os.makedirs(step)
        state = {i: {"step": torch.tensor(1.0), "exp_avg": module[n], "exp_avg_sq": module[n]} for i, n in enumerate(names)}
        numbers = iter(range(len(names)))
        optimizer = {"state": state, "param_groups": [{"params": [next(numbers) for _ in group]} for group in groups]}
        torch.save({"module": module, "optimizer": optimizer, "param_shapes": None, "buffer_names": [], "shared_params": None,
                    "global_steps": 1}, os.path.join(step, "mp_rank_00_model_states.pt"))
        with open(os.path.join(HERE, name, "latest"), "w") as file:
            file.write("global_step1")


def masters_of_bf16(folder, ranks):
    """BF16_Optimizer's files, which zero_to_fp32.py does not read: every group's parts joined and cut by its shapes."""
    step = os.path.join(folder, "global_step2")
    parts = [torch.load(f"{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", weights_only=False)
             ["optimizer_state_dict"]["single_partition_of_fp32_groups"] for rank in range(ranks)]
    return joined(parts, torch.load(f"{step}/mp_rank_00_model_states.pt", weights_only=False)["param_shapes"])


def to_universal(source, target):
    import argparse
    from deepspeed.checkpoint import ds_to_universal
    ds_to_universal.main(argparse.Namespace(input_folder=source, output_folder=target, num_extract_workers=1,
                                            num_merge_workers=1, keep_temp_folder=False, strict=False,
                                            inject_missing_state=True))


def universal_folder(name, of):
    """What ds_to_universal.py makes of a folder."""
    folder = fresh(name)
    to_universal(os.path.join(HERE, of, "global_step2"), os.path.join(folder, "global_step2_universal"))
    with open(os.path.join(folder, "latest_universal"), "w") as file:
        file.write("global_step2_universal")
    shutil.copy(os.path.join(HERE, of, "expected.safetensors"), folder)


def joined(flats, groups):
    """The flat tensors of ranks, one list of each group, cut by the shapes of the groups' parameters."""
    state = {}
    for i, shapes in enumerate(groups):
        flat, at = torch.cat([part[i] for part in flats]), 0
        for name, shape in shapes.items():
            state[name] = flat[at:at + shape.numel()].view(shape)
            at += shape.numel()
    return state


def moments_of_ranks(folder, ranks, third):
    """Moments by the names of parameters, from the files of DeepSpeed's ranks: as ds_to_universal.py cuts them."""
    import glob
    load = lambda pattern: [torch.load(path, weights_only=False)
                            for path in sorted(glob.glob(os.path.join(folder, "global_step2", pattern)))]
    states = [each["optimizer_state_dict"] for each in load("*_optim_states.pt")]
    groups = load("*mp_rank_00_model_states.pt")[0]["param_shapes"]
    key = "optimizer_state_dict" if third else "base_optimizer_state"
    moments = {}
    for kind in ("exp_avg", "exp_avg_sq"):
        flats = [[state[key]["state"][i][kind] for i in range(len(groups))] for state in states]
        if not third:
            masters = [state["single_partition_of_fp32_groups"] for state in states]
            flats = [[flat[:master.numel()] for flat, master in zip(*pair)] for pair in zip(flats, masters)]
            moments[kind] = joined(flats, groups)
            continue
        moments[kind] = {}
        for i, shapes in enumerate(groups):
            at = 0
            for name, shape in shapes.items():
                part = -(-shape.numel() // ranks)
                whole = torch.cat([flat[i][at:at + part] for flat in flats])
                moments[kind][name], at = whole[:shape.numel()].view(shape), at + part
    return moments


def moments_of_universal(folder):
    zero, moments = os.path.join(folder, "global_step2_universal", "zero"), {"exp_avg": {}, "exp_avg_sq": {}}
    for name in os.listdir(zero):
        for kind in moments:
            path = os.path.join(zero, name, kind + ".pt")
            if os.path.exists(path):
                value = torch.load(path, weights_only=False)
                value = value["param"] if isinstance(value, dict) else value
                moments[kind][name] = value.view(SHAPES[name])
    return moments


def moments_of_dcp(folder):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    with tempfile.TemporaryDirectory() as aside:
        dcp_to_torch_save(folder, os.path.join(aside, "dcp.pt"))
        state = torch.load(os.path.join(aside, "dcp.pt"), weights_only=False)["app"]["optim"]["state"]
    return {kind: {name: each[kind] for name, each in state.items()} for kind in ("exp_avg", "exp_avg_sq")}


FURTHER = {"zero1": lambda at: moments_of_ranks(at, 3, False), "zero2": lambda at: moments_of_ranks(at, 2, False),
           "zero3": lambda at: moments_of_ranks(at, 3, True), "bf16": lambda at: moments_of_ranks(at, 2, False),
           "plain": state_of_plain, "plain16": state_of_plain,
           "tp2": state_of_tp, "universal2": moments_of_universal, "universal3": moments_of_universal, "dcp": moments_of_dcp}


def further_losses(name, ids):
    """The losses of five more steps with torch.optim.AdamW, of transformers' llama on one sequence."""
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM
    folder = os.path.join(HERE, name)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager").float()
    weights = load_file(os.path.join(folder, "expected.safetensors"))
    model.load_state_dict(weights, strict=False)
    moments = FURTHER[name](folder)
    if FROZEN not in moments["exp_avg"]:
        model.get_parameter(FROZEN).requires_grad_(False)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert trained.keys() == moments["exp_avg"].keys(), (trained.keys(), moments["exp_avg"].keys())
    groups = [{"params": [p for p in trained.values() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in trained.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    for n, p in trained.items():
        optimizer.state[p] = {"step": torch.tensor(moments.get("step", 2.0)), **{kind: moments[kind][n].clone() for kind in ("exp_avg", "exp_avg_sq")}}
    tokens, losses = torch.tensor([ids]), []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_further():
    ids = [(3 * i * i + i) % VOCAB for i in range(16)]
    losses = {name: further_losses(name, ids + ids[:1]) for name in FURTHER}
    with open(os.path.join(HERE, "further.json"), "w") as file:
        json.dump({"ids": ids, "lr": 1e-2, "weight_decay": 0.1, "losses": losses}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    wanted = sys.argv[1:]
    jobs = {"zero2": lambda: deepspeed_folder(29611, "zero2", 2, 2, "bf16"),
            "zero1": lambda: deepspeed_folder(29612, "zero1", 3, 1, "fp16"),
            "zero3": lambda: deepspeed_folder(29613, "zero3", 3, 3, "bf16", frozen=True),
            "tp2": tp_folder,
            "plain": lambda: deepspeed_folder(29617, "plain", 1, 0, "fp32"),
            "plain16": lambda: deepspeed_folder(29618, "plain16", 1, 0, "fp16"),
            "numbered": numbered_folders,
            "bf16": lambda: deepspeed_folder(29614, "bf16", 2, 1, "bf16", data_types={"grad_accum_dtype": "fp32"}),
            "universal2": lambda: universal_folder("universal2", "zero2"),
            "universal3": lambda: universal_folder("universal3", "zero3"),
            "dcp": lambda: mp.spawn(run_dcp, (2, 29615, fresh("dcp"), True), nprocs=2),
            "dcp_plain": lambda: mp.spawn(run_dcp, (2, 29616, fresh("dcp_plain"), False), nprocs=2),
            "further": write_further}
    for name, job in jobs.items():
        if not wanted or name in wanted:
            job()
