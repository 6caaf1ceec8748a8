/* What Hugging Face transformers calls the tensors of a model, and how they map to our parameters:
 * one naming for all of its modeling_*.py that agree. Reading and writing use the same lists. */
#pragma once
#include "planner/model/model-config-write.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* The namings: X (ID, "model family", "prefix of the names of the inner model, which may be missing
 * in files", "a tensor that no naming before it has"). */
#define EXEC_NAMING_LIST(X) \
  X (GPT2, "gpt2", "transformer.", "h.0.attn.c_attn.weight") \
  X (GEMMA2, "gemma2", "model.", "layers.0.pre_feedforward_layernorm.weight") \
  X (PHI3, "phi3", "model.", "layers.0.self_attn.qkv_proj.weight") \
  X (GPT_NEOX, "gpt_neox", "gpt_neox.", "embed_in.weight") \
  X (BLOOM, "bloom", "transformer.", "word_embeddings_layernorm.weight") \
  X (FALCON_NORMS, "falcon", "transformer.", "h.0.ln_attn.weight") \
  X (FALCON, "falcon", "transformer.", "h.0.self_attention.query_key_value.weight") \
  X (MPT, "mpt", "transformer.", "blocks.0.attn.Wqkv.weight") \
  X (MIXTRAL, "mixtral", "model.", "layers.0.block_sparse_moe.gate.weight") \
  X (GPT_OSS, "gpt_oss", "model.", "layers.0.self_attn.sinks") \
  X (QWEN2_MOE, "qwen2_moe", "model.", "layers.0.mlp.shared_expert_gate.weight") \
  X (LLAMA4, "llama4_text", "model.", "layers.0.feed_forward.router.weight") \
  X (LLAMA4_DENSE, "llama4_text", "model.", "layers.0.feed_forward.gate_proj.weight") \
  X (LLAMA, "llama", "model.", "embed_tokens.weight")

typedef enum
{
#define X(id, ...) EXEC_NAMING_##id,
  EXEC_NAMING_LIST (X)
#undef X
      EXEC_N_NAMINGS
} ExecNaming;

/* A tensor in a file: some rows of one of our parameters. */
typedef struct
{
  char *name;
  PlanTensorRole role;
  gint64 layer;
  guint64 first_row, rows, cols; /* its rows in the parameter */
  gboolean is_vector;            /* a vector [rows] in the file */
  gboolean is_transposed;        /* transposed, [cols, rows], in the file */
  guint64 stacked;               /* how many matrices, one behind the other, it consists of */
  gboolean is_flat;        /* these matrices, heads, are one matrix [rows, cols] in the file */
  gboolean alternates;     /* each matrix has its rows in another order: exec_weight_row */
  gboolean is_interleaved; /* heads are in another order in the file, see exec_weight_head */
} ExecWeightName;

/* The naming that files of an architecture use. exec_naming_find: the naming of existing files, in
 * which `has` looks names up; the last naming where no name decides. */
ExecNaming exec_naming_of (PlanArchitecture architecture, const PlanModel *model);
ExecNaming exec_naming_find (gboolean (*has) (const char *name, gpointer data), gpointer data);

/* The prefix of the names of the inner model, which files may leave out. */
const char *exec_naming_prefix (ExecNaming naming);

/* All tensors of a model in the order of a file. INVALID where a parameter has no name. The caller
 * unrefs. */
GArray *exec_weight_names (const PlanModel *model, ExecNaming naming, GError **error);

/* The shape of a tensor in the file; returns how many dimensions it has. */
guint exec_weight_shape (const ExecWeightName *name, guint64 out_dims[3]);

/* The row of our matrix that is row `place` of the file's. Where rows alternate, the file has rows
 * 0, half, 1, half + 1, ... of ours. */
guint64 exec_weight_row (const ExecWeightName *name, guint64 place);

/* The number that a head has in our parameter of queries, keys and values, by its place in an
 * interleaved tensor of a file. Ours is all queries, all keys, all values; in the file each group
 * of queries is followed by the key and the value that it shares. */
guint64 exec_weight_head (const PlanModel *model, guint64 place);

G_END_DECLS
