# Compares a folder that export has written with its checkpoint, element by element. It reads both by
# the definitions of the formats and by transformers' names of modules, and shares no code with the
# program. Usage: export-files.py CHECKPOINT FOLDER
import array
import glob
import json
import re
import struct
import sys

SIZES = {"F32": 4, "BF16": 2, "F16": 2}


def tensors(path):
    """{name: (format, shape, bytes)} of a safetensors file."""
    data = open(path, "rb").read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:end]).items():
        if name != "__metadata__":
            begin, behind = entry["data_offsets"]
            yield name, (entry["dtype"], entry["shape"], data[end + begin:end + behind])


def words(form, data):
    """Elements as the bits of fp32."""
    if form == "F32":
        return list(array.array("I", data))
    if form == "BF16":
        return [bits << 16 for bits in array.array("H", data)]
    return list(array.array("I", array.array("f", struct.unpack("<%de" % (len(data) // 2), data)).tobytes()))


def narrow(form, bits):
    """The bits of an fp32 number in a format, rounded to nearest even."""
    if form == "F32":
        return bits
    if form == "BF16":
        return bits + 0x7FFF + (bits >> 16 & 1) >> 16
    return struct.unpack("<H", struct.pack("<e", struct.unpack("<f", struct.pack("<I", bits))[0]))[0]


def main_weights(checkpoint):
    """{(parameter, layer): elements} of a checkpoint, put together from the pieces of all ranks."""
    folder = next((line[7:].strip() for line in open(checkpoint + "/manifest") if line.startswith("folder=")))
    pieces = {}
    for path in glob.glob("%s/%s/rank-*.safetensors" % (checkpoint, folder)):
        for name, (form, shape, data) in tensors(path):
            state, parameter, layer, at = name.split("/")
            if state != "main":
                continue
            first, _, stride = at.partition(":")  # with a stride, rows are parts of wider ones
            values, run = words(form, data), shape[-1]
            for row in range(len(values) // run):
                pieces.setdefault((parameter, int(layer)), []).append(
                    (int(first) + row * int(stride or run), values[row * run:(row + 1) * run]))
    whole = {}
    for key, parts in pieces.items():
        whole[key] = []
        for first, values in sorted(parts):
            assert first == len(whole[key]), (key, first)
            whole[key] += values
    return whole


# Names of modules in families that use neither gpt2's nor llama's; and whether queries, keys and values
# are interleaved by key head: its queries, itself and its value.
MODULES = {
    "gpt_neox": (True, {
        "embed_in": "embedding", "input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm",
        "query_key_value": "qkv", "dense": "proj", "dense_h_to_4h": "gate_up", "dense_4h_to_h": "down",
        "final_layer_norm": "final_norm", "embed_out": "output"}),
    "falcon": (True, {
        "word_embeddings": "embedding", "word_embeddings_layernorm": "embed_norm", "input_layernorm": "attention_norm", "ln_attn": "attention_norm",
        "post_attention_layernorm": "mlp_norm", "ln_mlp": "mlp_norm", "query_key_value": "qkv", "dense": "proj",
        "dense_h_to_4h": "gate_up", "dense_4h_to_h": "down", "ln_f": "final_norm", "lm_head": "output"}),
    "mpt": (False, {
        "wte": "embedding", "norm_1": "attention_norm", "norm_2": "mlp_norm", "Wqkv": "qkv", "out_proj": "proj",
        "up_proj": "gate_up", "down_proj": "down", "norm_f": "final_norm", "lm_head": "output"}),
}
MODULES["bloom"] = MODULES["falcon"]


LATENT = {"q_proj": "q", "q_a_proj": "q_down", "q_a_layernorm": "q_up_norm", "q_b_proj": "q_up",
          "kv_a_proj_with_mqa": "kv_down", "kv_a_layernorm": "kv_up_norm", "kv_b_proj": "kv_up"}


def stacked(name, shape, weights, layer, alternates):
    """Parameter and elements of a tensor that stacks all experts, each transposed; gpt-oss alternates gates and ups."""
    inner = name.rsplit(".", 1)[1]
    ours = "expert_" + inner.replace("_proj", "")
    cols, each = (1, shape[1]) if inner.endswith("_bias") else (shape[1], shape[2])
    kept = weights[ours, layer]
    rows = [r for i in range(each // 2) for r in (i, each // 2 + i)] if alternates and inner.startswith("gate_up") else range(each)
    return ours, [kept[(e * each + r) * cols + c] for e in range(shape[0]) for c in range(cols) for r in rows]


def in_pairs(kept, size, cols):
    """Elements of heads of `size` elements, with rows of both halves alternating, as interleaved rotary positions need."""
    rows = [kept[at:at + cols] for at in range(0, len(kept), cols)]
    each = size // cols
    order = [first + i + half for first in range(0, len(rows), each) for i in range(each // 2) for half in (0, each // 2)]
    return [bits for row in order for bits in rows[row]]


def mixed_heads(config):
    """The order of heads in the file, as places among all queries, then all keys, then all values."""
    heads = config.get("num_attention_heads") or config["n_head"]
    keys = config.get("num_kv_heads", heads)
    order = []
    for key in range(keys):
        order += list(range(key * heads // keys, (key + 1) * heads // keys)) + [heads + key, heads + keys + key]
    return order


def where(name, config):
    """Parameter, layer, first row, number of rows, and whether it is transposed in the file."""
    layer = re.search(r"\.(\d+)\.", name)
    layer = int(layer.group(1)) if layer else 0
    end = name.rsplit(".", 2)[-2:]
    if config["model_type"] == "gpt2":
        if end[0] in ("wte", "wpe", "ln_f", "lm_head"):
            ours = {"wte": "embedding", "wpe": "positions", "ln_f": "final_norm", "lm_head": "output"}[end[0]]
        else:
            inner = ".".join(name.split(".")[3:-1])
            ours = {"ln_1": "attention_norm", "ln_2": "mlp_norm", "attn.c_attn": "qkv", "attn.c_proj": "proj",
                    "mlp.c_fc": "gate_up", "mlp.c_proj": "down"}[inner]
        is_transposed = end[0].startswith("c_") and end[1] == "weight"
        return ours + ("_bias" if end[1] == "bias" else ""), layer, 0, None, is_transposed
    if config["model_type"] in MODULES:
        ours = MODULES[config["model_type"]][1][end[0]]
        return ours + ("_bias" if end[1] == "bias" else ""), layer, 0, None, False
    dim = config.get("head_dim", 0)  # not used in latent attention
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    ffn = config.get("intermediate_size_mlp", config["intermediate_size"])
    if "kv_lora_rank" in config and end[0] in LATENT:
        return LATENT[end[0]], layer, 0, None, False
    if end[1] == "sinks" or end == ["router", "bias"]:
        return {"sinks": "sinks", "bias": "router_biases"}[end[1]], layer, 0, None, False
    expert = re.search(r"\.experts\.(\d+)\.", name)
    if expert:
        number, width = int(expert.group(1)), config.get("moe_intermediate_size", ffn)
        ours, first, rows = {
            "w1": ("gate_up", 2 * number * width, width), "gate_proj": ("gate_up", 2 * number * width, width),
            "w3": ("gate_up", (2 * number + 1) * width, width), "up_proj": ("gate_up", (2 * number + 1) * width, width),
            "w2": ("down", number * config["hidden_size"], config["hidden_size"]),
            "down_proj": ("down", number * config["hidden_size"], config["hidden_size"])}[end[0]]
        return "expert_" + ours, layer, first, rows, False
    if re.search(r"\.shared_experts?\.", name):
        width = config.get("shared_expert_intermediate_size",
                           config.get("n_shared_experts", 0) * config.get("moe_intermediate_size", 0)
                           or config["intermediate_size"])
        ours, first, rows = {"gate_proj": ("gate_up", 0, width), "up_proj": ("gate_up", width, width),
                             "down_proj": ("down", 0, None)}[end[0]]
        return "shared_" + ours, layer, first, rows, False
    if end[1] == "e_score_correction_bias":
        return "router_bias", layer, 0, None, False
    ours, first, rows = {
        "embed_tokens": ("embedding", 0, None), "input_layernorm": ("attention_norm", 0, None),
        "q_proj": ("qkv", 0, q), "k_proj": ("qkv", q, kv), "v_proj": ("qkv", q + kv, kv),
        "q_norm": ("q_norm", 0, None), "k_norm": ("k_norm", 0, None), "o_proj": ("proj", 0, None),
        "post_attention_layernorm": ("mlp_norm", 0, None), "gate_proj": ("gate_up", 0, ffn),
        "up_proj": ("gate_up", ffn, ffn), "down_proj": ("down", 0, None), "norm": ("final_norm", 0, None),
        "lm_head": ("output", 0, None), "gate": ("router", 0, None), "router": ("router", 0, None),
        "shared_expert_gate": ("shared_gate", 0, None), "qkv_proj": ("qkv", 0, None), "gate_up_proj": ("gate_up", 0, None),
        "pre_feedforward_layernorm": ("mlp_norm", 0, None),
        "post_feedforward_layernorm": ("mlp_post_norm", 0, None)}[end[0]]
    if config["model_type"] in ("gemma2", "gemma3_text") and end[0] == "post_attention_layernorm":
        ours = "attention_post_norm"
    return ours + ("_bias" if end[1] == "bias" else ""), layer, first, rows, False


def compare(checkpoint, folder):
    config = json.load(open(folder + "/config.json"))
    weights, seen, n = main_weights(checkpoint), {}, 0
    for path in sorted(glob.glob(folder + "/*.safetensors")):
        for name, (form, shape, data) in tensors(path):
            theirs = array.array({4: "I", 2: "H"}[SIZES[form]], data)
            if re.search(r"\.experts\.\D", name):
                layer = int(re.search(r"\.(\d+)\.", name).group(1))
                ours, kept = stacked(name, shape, weights, layer, config["model_type"] == "gpt_oss")
                assert [narrow(form, bits) for bits in kept] == list(theirs), name
                seen[ours, layer] = len(kept)
                n += len(kept)
                continue
            ours, layer, first, rows, is_transposed = where(name, config)
            key = ours, layer
            cols = 1 if len(shape) == 1 else shape[0] if is_transposed else shape[1]
            count = len(data) // SIZES[form]
            assert rows is None or rows == shape[0], name
            kept = weights[key][first * cols:first * cols + count]
            if is_transposed:
                kept = [kept[r * cols + c] for c in range(cols) for r in range(count // cols)]
            if ours.startswith("qkv") and MODULES.get(config["model_type"], (False,))[0]:
                order = mixed_heads(config)
                size = count // len(order)
                kept = [bits for head in order for bits in kept[head * size:(head + 1) * size]]
            if config["model_type"] == "llama4_text" and re.search(r"\.[qk]_proj\.", name):
                kept = in_pairs(kept, config["head_dim"] * cols, cols)
            assert [narrow(form, bits) for bits in kept] == list(theirs), name
            seen[key] = seen.get(key, 0) + count
            n += count
    for key, values in weights.items():
        padding = any(values[seen.get(key, 0):])
        assert seen.get(key) == len(values) or (key[0] in ("embedding", "output") and not padding), key
    print(folder, config["architectures"][0], n, "elements")


compare(*sys.argv[1:])
