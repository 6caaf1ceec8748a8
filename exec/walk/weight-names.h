/* What Hugging Face transformers calls the parts of our parameters, and how it lays them out: one
 * way for each of its modeling_*.py that differ. Reading and writing go by the same lists. */
#pragma once
#include "planner/model/model-config-write.h"
#include "planner/model/model.h"
#include <glib.h>
G_BEGIN_DECLS

/* Ways of naming. X (ID, "of whom", "what names of its inner model begin with, or not", "a tensor
 * that no way before it has") */
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
  X (LLAMA, "llama", "model.", "embed_tokens.weight")

typedef enum
{
#define X(id, ...) EXEC_NAMING_##id,
  EXEC_NAMING_LIST (X)
#undef X
      EXEC_N_NAMINGS
} ExecNaming;

/* A tensor in a file: rows of one parameter that lie together. */
typedef struct
{
  char *name;
  PlanTensorRole role;
  gint64 layer;
  guint64 first_row, rows, cols; /* in the parameter */
  gboolean is_vector;            /* [rows] in the file */
  gboolean is_turned;            /* [cols, rows] in the file */
  gboolean is_mixed;             /* see exec_weight_head */
} ExecWeightName;

/* That of files of an architecture of that model, and of files in which `has` finds names; the last
 * one where none is told by them. */
ExecNaming exec_naming_of (PlanArchitecture architecture, const PlanModel *model);
ExecNaming exec_naming_find (gboolean (*has) (const char *name, gpointer data), gpointer data);

/* What names of the inner model begin with, or not. */
const char *exec_naming_prefix (ExecNaming naming);

/* All of a model's, in the order of a file; INVALID where a parameter has no name. The caller
 * unrefs. */
GArray *exec_weight_names (const PlanModel *model, ExecNaming naming, GError **error);

/* Which head a mixed tensor has at that place. Ours are all queries, all keys, all values; there
 * each key head stands behind the queries that share it, and before its value. */
guint64 exec_weight_head (const PlanModel *model, guint64 place);

G_END_DECLS
